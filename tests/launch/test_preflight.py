"""The launcher's refusals before anything starts: one sentence that names the key and the fix."""

import json
import re
import shutil
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from huggingface_hub import close_session
from omegaconf import OmegaConf, open_dict
from rich.console import Console

from env_service.client import ServiceClient, ServiceError
from env_service.environments.bfcl.task_file import write_task_file
from env_service.environments.registry import get_environment, register
from env_service.protocol import PROTOCOL
from seal.backends import vllm_plugin
from seal.cli.main import execute, load
from seal.launch.checks import devices, places, preflight
from seal.launch.checks.devices import Cluster, Node, authentication_modes
from seal.launch.recipe import EXP, Recipe, read_recipe
from seal.launch.run import Prepared, Request, find_services, launch, rehearse
from seal.launch.run import prepare as prepare_run
from seal.launch.service import Found, Needs, Service, find_or_place, find_running, probe, service_urls
from seal.launch.start import LEFT_OUT, Start
from seal.settings import SettingsError
from seal.settings.run import CheckpointSettings
from seal.settings.user import KEY_VARIABLE
from seal.system import exits
from seal.system.errors import LaunchError
from seal.system.net import is_free
from seal.system.paths import HOME
from seal.training.checkpoints import Checkpoints
from seal.training.cluster import SIZES, prepare, uses_existing_cluster
from seal.training.runner import hide_secrets
from shelf.task_rows import read_rows
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.support.checkpoints import write_step
from tests.support.errands import Errands
from tests.support.launches import free_url
from tests.support.loopback import Loopback
from tests.support.recipes import composed
from tests.support.rollout_play import running_service
from tests.support.stub_server import service_that_answers
from tests.support.user_server import user_server

POLICY = HOME / "data" / "quickstart_policy"
MODEL = "actor_rollout_ref.model"


@pytest.fixture
def config():
    return composed(HOME / "exp" / "quickstart.yaml")


def refused(config, check=preflight.fit) -> str:
    with pytest.raises((LaunchError, SettingsError)) as error:
        check(Recipe.of(config))
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_weighs_dialogues_is_refused_where_a_rollout_may_have_several():
    harness = "seal.rollout.harness=tests.support.harnesses:native"
    for override in ("algorithm.adv_estimator=rloo", "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"):
        key, _, value = override.partition("=")
        sentence = refused(composed(HOME / "exp" / "quickstart.yaml", harness, override), preflight.CHECKS["dialogues"])
        assert key in sentence and value in sentence and "seal.rollout.trained" in sentence
        for plain in ((override,), (harness, override, "seal.rollout.trained=main"), (harness,)):
            preflight.CHECKS["dialogues"](Recipe.of(composed(HOME / "exp" / "quickstart.yaml", *plain)))


@pytest.mark.parametrize("raised", [KeyError("stock"), ValueError("no stock\nno shop"), SystemExit(2)])
def test_a_task_that_its_environment_cannot_open_is_one_sentence(raised, monkeypatch):
    def world(*_):
        raise raised

    register("errands", "tests.support.errands:Errands")
    monkeypatch.setattr(Errands, "world", world)
    chosen = ("seal.data.train={task_file: null, categories: [], mixture: []}", "seal.data.val=[{split: eval}]")
    chosen += ("env_service.env_type=errands", "seal.data.withdrawal=null")
    sentence = refused(composed(HOME / "exp" / "quickstart.yaml", *chosen), preflight.CHECKS["user"])
    assert sentence.startswith("errands cannot open ") and type(raised).__name__ in sentence


def test_a_model_that_plays_the_user_needs_a_part_and_an_endpoint(monkeypatch):
    register("errands", "tests.support.errands:Errands")
    register("mixed", "tests.support.errands:Mixed")
    errands = ("env_service.env_type=errands", "seal.data.train={task_file: null, categories: [], mixture: []}")
    errands += ("seal.data.val=[{split: eval}]", "seal.data.withdrawal=null")

    def checked(url, *overrides):
        where = [f"seal.user.base_url={url}", "seal.user.model=crowd"]
        return composed(HOME / "exp" / "quickstart.yaml", *overrides, *where)

    check = preflight.CHECKS["user"]
    assert "no user of bfcl is for a model" in refused(checked("http://127.0.0.1:9/v1"), check)
    assert "seal.user.base_url=http://127.0.0.1:9/v1 does not answer" in refused(
        checked("http://127.0.0.1:9/v1", *errands), check
    )
    for port in ("99999", "x"):
        assert f"seal.user.base_url=http://127.0.0.1:{port}/v1 does not answer (Port" in refused(
            checked(f"http://127.0.0.1:{port}/v1", *errands), check
        )
    with user_server() as (user, _):
        check(Recipe.of(checked(user, *errands)))
        check(Recipe.of(checked(user, "env_service.env_type=mixed", *errands[1:])))
        monkeypatch.setenv("https_proxy", user.removesuffix("/v1"))
        check(Recipe.of(checked("https://model.invalid/v1", *errands)))
    with pytest.raises(LaunchError, match=r"needs the name of a model, seal\.user\.model"):
        composed(HOME / "exp" / "quickstart.yaml", "seal.user.base_url=http://x/v1")


def test_everything_that_is_missing_is_told_at_once_this_machine_first_and_the_hub_is_not_asked(monkeypatch):
    monkeypatch.setattr("seal.launch.checks.model.hf_hub_download", lambda *_, **__: pytest.fail("asked the hub"))
    config = composed(HOME / "exp" / "SEAL.yaml", "seal.min_free_gb=1e6", "trainer.logger=[tensorbord]")
    config.trainer.n_gpus_per_node = 64
    config.actor_rollout_ref.actor.ppo_mini_batch_size = 32
    with pytest.raises(LaunchError) as error:
        preflight.fit(Recipe.of(config))
    first, second, *rest = str(error.value).splitlines()
    assert "trainer.n_gpus_per_node=64, but torch finds" in first and "seal.min_free_gb" in second
    assert any("tensorbord" in sentence for sentence in rest) and len(set(rest)) == len(rest)


def test_a_run_without_an_interface_announces_no_withdrawal():
    for ablation, announced in ((), True), (("ablation=vanilla",), False):
        recipe = read_recipe(HOME / "exp" / "quickstart.yaml", ablation)
        assert recipe.rows.withdrawal
        assert ("with and without cues" in Prepared(recipe, EXP, Start(0), 0).plan) == announced


def test_a_rehearsal_says_whether_a_recipe_can_start(capsys, monkeypatch):
    monkeypatch.chdir(HOME)
    assert execute(load("train"), ["exp/quickstart.yaml", "--dry-run"], "seal train") == 0
    rows, said = read_recipe(HOME / "exp" / "quickstart.yaml", []).rows, capsys.readouterr().out
    numbers = len(rows.train), len(rows.val), len(rows.withdrawal)
    (line,) = [line for line in said.splitlines() if "quickstart can start" in line]
    assert tuple(map(int, re.findall(r"\d+", line))) == numbers
    assert execute(load("train"), ["exp/quickstart.yaml", "--dry-run", "trainer.logger=null"], "seal train") == 1
    assert "trainer.logger is null; it must be a text or a list" in capsys.readouterr().out
    wrong = ["exp/quickstart.yaml", "--dry-run", "trainer.logger=[tensorbord]", "seal.min_free_gb=1e6"]
    assert execute(load("train"), wrong, "seal train") == 1
    assert capsys.readouterr().out.count("error: ") == 2


def written_rows(config) -> tuple[int, int]:
    """Write the rows of a configuration; how many there are to train and to validate on."""
    rows = Recipe.of(config).rows
    rows.write(HOME / config.data.train_files, HOME / config.data.val_files)
    return len(rows.train), len(rows.val)


def policy(tmp_path, **changes):
    """A folder with the small policy's configuration, changed."""
    (tmp_path / "config.json").write_text(json.dumps(json.loads((POLICY / "config.json").read_text()) | changes))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (f"{MODEL}.path", "/nowhere/Qwen2.5-7B", f"{MODEL}.path=/nowhere/Qwen2.5-7B"),
        (f"{MODEL}.path", "models/of/mine", f"{MODEL}.path=models/of/mine"),
        (f"{MODEL}.path", "data/mine", f"{MODEL}.path=data/mine"),
        (f"{MODEL}.path", str(HOME / "data"), "holds no config.json"),
        (f"{MODEL}.lora_adapter_path", "adapters/none", f"{MODEL}.lora_adapter_path=adapters/none"),
        ("env_service.prompt_mode", "qwen", "bfcl_qwen_fc"),
        ("env_service.env_url", "localhost:8082", "http://HOST:PORT"),
        ("env_service.env_url", [], "env_service.env_url"),
        ("env_service.env_url", ["http://a:1", "http://a:1/"], "a list of different ones"),
        ("trainer.nnodes", 2, "RAY_ADDRESS"),
        ("ray_kwargs.ray_init.num_cpus", "few", "ray_kwargs.ray_init.num_cpus=few must be a whole number"),
        ("algorithm.filter_groups.enable", True, "before their labels reach C_t"),
        ("data.train_batch_size", 9, "actor_rollout_ref.actor.ppo_mini_batch_size=8"),
        ("ray_kwargs.ray_init.address", "ray://head:10001", "HOST:PORT"),
        ("seal.diagnosis.taxonomy", "papper", "choose one of: paper, release"),
        ("seal.diagnosis.window", 0, "seal.diagnosis.window is 0"),
        ("seal.infra_limit", 0, "seal.infra_limit is 0"),
        ("seal.rollout.attempts", 1.5, "seal.rollout.attempts is 1.5"),
        ("env_service.attempts", 0, "env_service.attempts is 0"),
        ("env_service.timeout_s", 0, "env_service.timeout_s is 0"),
        ("env_service.restart_wait_s", -1, "env_service.restart_wait_s is -1"),
        ("env_service.env_type", "counter", "env_service.env_type=counter"),
        ("env_service.prompt_modes.tau2_telcom", "hermes", "env_service.prompt_modes names tau2_telcom"),
        (LEFT_OUT, ["bfcl/caution", "tau2_telcom/caution"], "left_out names tau2_telcom, which is no environment"),
        ("actor_rollout_ref.rollout.name", "sglang", "actor_rollout_ref.rollout.name is 'sglang'; it must be 'vllm'"),
        ("actor_rollout_ref.rollout.trace.backend", "mlflow", "actor_rollout_ref.rollout.trace.backend is 'mlflow'"),
        ("trainer.device", "gpu", "trainer.device is 'gpu'; it must be 'cuda' or 'cpu'"),
        (
            "data.train_files",
            "/data/gsm8k/train.parquet",
            "data.train_files=/data/gsm8k/train.parquet is where the run",
        ),
        ("data.val_files", ["/data/a.parquet", "/data/b.parquet"], "data.val_files=['/data/a.parquet', "),
        ("trainer.validation_data_dir", "/elsewhere", "trainer.validation_data_dir=/elsewhere"),
        ("trainer.validation_data_dir", None, "trainer.validation_data_dir=None"),
    ],
)
def test_what_cannot_run_is_named(config, key, value, named):
    OmegaConf.update(config, key, value, force_add=True)
    assert named in refused(config)


def test_a_folder_without_weights_or_tokenizer_is_named(config, tmp_path):
    config.actor_rollout_ref.model.path = policy(tmp_path)
    assert "holds no weights: `seal export`" in refused(config, preflight.CHECKS["model"])
    (tmp_path / "model.safetensors").touch()
    assert "holds no tokenizer: `seal export`" in refused(config, preflight.CHECKS["model"])
    shutil.copy(POLICY / "tokenizer.json", tmp_path)
    preflight.CHECKS["model"](Recipe.of(config))
    (tmp_path / "config.json").write_text("{")
    assert "its config.json is cut or no JSON" in refused(config, preflight.CHECKS["model"])


@pytest.mark.parametrize("source", ["permuted", "random"])
def test_other_labels_are_no_control_of_a_retry_which_reads_none(config, source):
    config.seal.interface = {**config.seal.interface, "teacher": "retry", "share": 0.5}
    preflight.CHECKS["teacher"](Recipe.of(config))
    config.seal.diagnosis.source = source
    assert f"seal.diagnosis.source={source}" in refused(config, preflight.CHECKS["teacher"])


@pytest.mark.parametrize("evolve", [{"kinds": ["feedback"]}, {"left_out": ["schema_required"]}])
def test_a_retry_without_a_cue_that_shows_documents_is_refused(config, evolve):
    evolve = {**config.seal.interface.evolve, **evolve}
    config.seal.interface = {**config.seal.interface, "teacher": "retry", "share": 0.5, "evolve": evolve}
    assert "no cue in use holds any" in refused(config, preflight.CHECKS["teacher"])


@pytest.mark.parametrize(("share", "fits"), [(0.1, False), (0.125, True), (1.0, True)])
def test_a_share_without_a_rollout_is_named(config, share, fits):
    config.seal.interface.share = share
    if fits:
        preflight.CHECKS["teacher"](Recipe.of(config))
    else:
        assert "seal.interface.share=0.1 leaves no rollout" in refused(config, preflight.CHECKS["teacher"])


def test_fewer_tasks_than_a_batch_are_named(config):
    config.seal.data.train = {"split": "train", "categories": ["base"], "limit": 7}
    assert "selects 7 tasks, fewer than data.train_batch_size=8: widen" in refused(config)
    config.data.train_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size = 4
    preflight.CHECKS["tasks"](Recipe.of(config))
    config.trainer.v1.trainer_mode = "seal_async"  # two rollouts of one seed would be the same
    assert "data.train_batch_size=4, of which the first step draws 2: widen" in refused(config)
    config.seal.data.val = []
    assert "seal.data.val is empty" in refused(config)


def test_more_steps_than_the_epochs_have_are_named(config):
    config.seal.data.train = {"split": "train", "categories": ["base"], "limit": 17}
    config.trainer.total_epochs, config.trainer.total_training_steps = 3, 7
    assert "trainer.total_training_steps=7 is more than the 6 steps of trainer.total_epochs=3" in refused(config)
    config.trainer.total_training_steps = 6
    preflight.CHECKS["tasks"](Recipe.of(config))


def use_hub(monkeypatch, url: str) -> None:
    """Set the constants that HF_ENDPOINT sets when the library is imported."""
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A Hugging Face hub and an empty cache: its answers, by model, are a configuration or a refusal."""
    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self):
            model = self.path.removeprefix("/").split("/resolve/")[0]
            answer = answers.get(model, "RepoNotFound")
            body = b"" if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(403 if answer == "GatedRepo" else 200 if body else 404)
            if isinstance(answer, str):
                self.send_header("X-Error-Code", answer)
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", f'"{hash(body):x}"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_GET = do_HEAD

        def log_message(self, *_):
            return None

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with Loopback(Handler) as server:
        use_hub(monkeypatch, server.url)
        yield answers


def test_a_model_of_the_hub_is_checked_before_the_start(config, hub, monkeypatch):
    check = preflight.CHECKS["model"]
    OmegaConf.update(config, f"{MODEL}.path", "Somebody/small")
    for offline in ("1", True):
        config.seal.process_env.HF_HUB_OFFLINE = offline
        assert "this recipe works offline" in refused(config, check)
    config.seal.process_env.HF_HUB_OFFLINE = "0"
    hub["Somebody/small"] = {"max_position_embeddings": 2048, "num_attention_heads": 4}
    preflight.fit(Recipe.of(config))
    hub["Somebody/short"] = {"max_position_embeddings": 1024}
    for model, named in (
        ("Somebody/short", "1024 positions"),
        ("Somebody/smal", "answers 404"),
        ("Somebody/gated", "is gated: accept its terms at http://127.0.0.1"),
    ):
        hub["Somebody/gated"] = "GatedRepo"
        OmegaConf.update(config, f"{MODEL}.path", model)
        assert named in refused(config, check)
    use_hub(monkeypatch, free_url())
    monkeypatch.setattr("time.sleep", lambda _: None)  # between the attempts of a hub that does not answer
    OmegaConf.update(config, f"{MODEL}.path", "Somebody/small")
    check(Recipe.of(config))  # from the cache
    OmegaConf.update(config, f"{MODEL}.path", "Somebody/other")
    assert "does not answer" in refused(config, check)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refused(config, check)


@pytest.mark.parametrize(("name", "value"), [("ALL_PROXY", "socks://127.0.0.1:9"), ("NO_PROXY", "localhost,[::1]")])
def test_a_proxy_that_the_hub_s_client_cannot_use_is_named(config, hub, monkeypatch, name, value):
    config.seal.process_env.HF_HUB_OFFLINE = "0"
    OmegaConf.update(config, f"{MODEL}.path", "Somebody/small")
    close_session()
    with monkeypatch.context() as shell:
        shell.setenv(name, value)
        shell.delenv(name.lower(), raising=False)
        assert "correct ALL_PROXY, HTTPS_PROXY or NO_PROXY" in refused(config, preflight.CHECKS["model"])
    close_session()


@pytest.mark.parametrize(
    ("model", "key", "value", "named"),
    [
        ({"max_position_embeddings": 1024}, "trainer.nnodes", 1, "1024 positions"),
        ({}, "actor_rollout_ref.rollout.tensor_model_parallel_size", 4, "rollout.tensor_model_parallel_size=4"),
        ({}, "actor_rollout_ref.actor.ulysses_sequence_parallel_size", 4, "actor.ulysses_sequence_parallel_size=4"),
    ],
)
def test_a_model_that_does_not_fit_the_settings_is_named(config, tmp_path, model, key, value, named):
    config.trainer.n_gpus_per_node = 4
    OmegaConf.update(config, f"{MODEL}.path", policy(tmp_path, **model))
    OmegaConf.update(config, key, value)
    assert named in refused(config, preflight.CHECKS["model"])


def test_one_address_and_a_list_are_services(config):
    assert service_urls(config) == ("http://127.0.0.1:8082",)
    config.env_service.env_url = ["http://a:1/", "https://b"]
    assert service_urls(config) == ("http://a:1", "https://b")
    with pytest.raises(LaunchError, match="--with-service starts one service"):
        find_or_place(service_urls(config), Needs(()))


@pytest.mark.parametrize(
    "address", ["127.0.0.1:8082", "http://", "http://a:8082x", "http://a:99999", "http://[::1", "ftp://a:1"]
)
def test_a_text_that_is_no_address_is_named(config, address):
    config.env_service.env_url = address
    with pytest.raises(LaunchError, match=r"is not an address: write http://HOST:PORT"):
        service_urls(config)


def test_nothing_listens_at_a_host_that_is_not_there():
    assert is_free("http://no-such-host.invalid:8082") and is_free("http://[::1]:9")


def test_services_must_answer_and_be_the_same():
    needs, same = Needs(("bfcl",)), {**get_environment("bfcl").version(), "protocol": PROTOCOL}
    with service_that_answers(**same) as one, service_that_answers(**same) as two:
        assert find_running([one, two], needs) == Found((one, two), {"service": "stub", **same})
        with service_that_answers(**{**same, "data_hash": "b"}) as other, pytest.raises(LaunchError) as error:
            find_running([one, other], needs)
        assert "data_hash" in str(error.value) and other in str(error.value)
        with pytest.raises(LaunchError, match="No environment service answers"):
            find_running([one, "http://127.0.0.1:9"], needs)


def test_a_complete_run_is_told_without_a_service(tmp_path):
    own = [f"seal.run_dir={tmp_path}/run", f"env_service.env_url={free_url()}", "trainer.total_training_steps=1"]
    request = Request(HOME / "exp" / "quickstart.yaml", (*own, "trainer.test_freq=-1"))
    console = Console(record=True, width=200)
    with pytest.raises(LaunchError, match="No environment service answers"), prepare_run(request, console) as run:
        find_services(run, request)
    assert not (tmp_path / "run").exists()
    checkpoints = read_recipe(request.source, request.overrides).checkpoints
    write_step(Checkpoints(checkpoints, CheckpointSettings()), 1)
    for act in (rehearse, launch):
        assert act(request, console) == exits.FINISHED
        assert "is complete" in console.export_text()


def test_a_rehearsal_refuses_what_a_launch_refuses(tmp_path):
    source, own = HOME / "exp" / "quickstart.yaml", (f"seal.run_dir={tmp_path}/run",)
    write_step(Checkpoints(read_recipe(source, own).checkpoints, CheckpointSettings()), 1)
    console = Console(record=True, width=200)
    for resume, said in (("never", "already holds a run"), (f"{tmp_path}/global_step_9", "is not a checkpoint")):
        with pytest.raises(LaunchError, match=said):
            rehearse(Request(source, own, resume=resume), console)
    assert rehearse(Request(source, own), console) == exits.FINISHED
    assert "quickstart continues after step 1: " in console.export_text()


def test_the_files_of_a_recipe_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = read_recipe(HOME / "exp" / "quickstart.yaml", [])
    assert recipe.rows.train and recipe.task_files and all(Path(file).is_file() for file in recipe.task_files)


def test_a_null_address_starts_a_cluster_for_the_run(config):
    config.ray_kwargs.ray_init.address = None
    preflight.CHECKS["devices"](Recipe.of(config))
    prepare(config, {})
    assert config.ray_kwargs.ray_init.address == "local"


def place(folder) -> Service:
    """A service that a launch starts at a free port."""
    return Service(Found((free_url(),), None), Needs(("bfcl",)), folder / "service.log")


def test_a_guarded_service_is_shown_its_token_and_no_proxy_is_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("BFCL_TOKEN", "secret")
    monkeypatch.setenv("http_proxy", free_url())
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    guarded = place(tmp_path)
    try:
        assert guarded.start()["data_hash"]
        monkeypatch.setenv("BFCL_TOKEN", "another")
        with pytest.raises(LaunchError, match="set BFCL_TOKEN"):
            probe(guarded.url)
    finally:
        guarded.stop()


def test_a_service_that_is_started_delays_its_answers_to_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("BFCL_DELAY_SECONDS", "1000")
    slow = place(tmp_path)
    try:
        slow.start()
        with ServiceClient(slow.url, deadline_s=2) as client:
            client.create("multi_turn_base_0", "one")
            with pytest.raises(ServiceError, match="within 2 s"):
                client.step("one", "Done.")
            assert client.version().data_hash  # it lives, and only steps wait
    finally:
        slow.stop()


def test_a_service_must_serve_the_tasks_of_the_mixtures(tmp_path, config):
    for seed in (0, 1):
        write_task_file(synthesise(Grammar(), 4, seed), tmp_path / f"{seed}.jsonl")
    first, second = (str(tmp_path / f"{seed}.jsonl") for seed in (0, 1))
    config.seal.data.train.mixture = [{"tasks": "bfcl"}, {"tasks": first}]
    config.seal.data.val = [{"split": "eval", "limit": 1}]
    config.seal.data.withdrawal = None
    assert Recipe.of(config).task_files == (first,)
    with running_service(BFCL_TASK_FILES=first) as service:
        assert find_running([service.url], Needs(("bfcl",), (first,))).version
        with pytest.raises(LaunchError, match="does not serve 4 tasks"):
            find_running([service.url], Needs(("bfcl",), (first, second)))
    config.seal.data.train.mixture = [{"tasks": "./nowhere.jsonl"}]
    with pytest.raises(LaunchError, match="nowhere"):
        preflight.fit(Recipe.of(config))


def test_a_mixture_is_written_as_rows(tmp_path, config):
    write_task_file(synthesise(Grammar(), 90, 0), tmp_path / "made.jsonl")
    config.seal.run_dir = str(tmp_path / "run")
    config.data.train_files, config.data.val_files = (str(tmp_path / f"{side}.parquet") for side in ("train", "val"))
    config.seal.data.train = {"mixture": [{"tasks": "bfcl"}, {"tasks": str(tmp_path / "made.jsonl")}]}
    training, _ = written_rows(config)
    rows = read_rows(tmp_path / "train.parquet")
    assert training == len(rows) == 180
    assert sum(row.task_id.startswith("synth_") for row in rows) == 90


def test_the_tasks_of_a_withdrawal_are_written_twice_beside_the_validation_s(tmp_path, config):
    config.seal.run_dir = str(tmp_path / "run")
    config.data.train_files, config.data.val_files = (str(tmp_path / f"{side}.parquet") for side in ("train", "val"))
    config.seal.data.withdrawal = {"split": "train", "categories": ["base"], "limit": 2}
    _, validation = written_rows(config)
    assert validation == len(read_rows(tmp_path / "val.parquet"))
    written = pq.read_table(tmp_path / "withdrawal.parquet").to_pylist()
    assert [row["extra_info"]["index"] for row in written] == list(range(validation, validation + 4))
    assert [row["extra_info"]["withdrawal"] for row in written] == ["shown", "hidden"] * 2
    config.seal.data.withdrawal.split = "eval"
    with pytest.raises(SettingsError, match=r"seal\.data\.withdrawal needs split=train"):
        Recipe.of(config)


@pytest.mark.parametrize(
    ("cluster", "named"),
    [
        (Cluster((Node("10.0.0.1", 64, 8), Node("10.0.0.2", 64, 8)), in_use=True), "Another run"),
        (Cluster((Node("10.0.0.1", 64, 8), Node("10.0.0.2", 64, 4)), in_use=False), "trainer.nnodes=2"),
        (Cluster((Node("10.0.0.1", 64, 8), Node("10.0.0.2", 16, 8)), in_use=False), "--num-cpus=26"),
        (
            Cluster((Node("10.0.0.1", 64, 8), Node("10.0.0.2", 64, 8), Node("10.0.0.3", 0, 0)), in_use=False),
            "and 1 on any",
        ),
        (Cluster((Node("10.0.0.1", 26, 8), Node("10.0.0.2", 26, 8)), in_use=False), "env_service.env_url"),
    ],
)
def test_a_cluster_that_a_run_cannot_use_is_named(config, monkeypatch, cluster, named):
    monkeypatch.setattr(devices, "inspect_cluster", lambda address: cluster)
    config.ray_kwargs.ray_init.address = "10.0.0.1:6379"
    config.trainer.nnodes, config.trainer.n_gpus_per_node = 2, 8
    assert named in refused(config, preflight.CHECKS["devices"])
    config.env_service.env_url = "http://10.0.0.1:8082"
    if named == "env_service.env_url":
        preflight.CHECKS["devices"](Recipe.of(config))
        config.seal.user.base_url, config.seal.user.model = "http://localhost:9000/v1", "crowd"
        assert "seal.user.base_url=http://localhost:9000/v1 cannot be reached" in refused(
            config, preflight.CHECKS["devices"]
        )
        config.seal.user.base_url = "http://10.0.0.1:9000/v1"
        preflight.CHECKS["devices"](Recipe.of(config))


def test_the_shells_ray_address_is_the_recipes(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert read_recipe(HOME / "exp" / "SEAL.yaml", []).config.ray_kwargs.ray_init.address == "10.0.0.1:6379"
    mine = read_recipe(HOME / "exp" / "SEAL.yaml", ["ray_kwargs.ray_init.address=local"]).config
    assert mine.ray_kwargs.ray_init.address == "local"


def test_an_empty_ray_address_is_none(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "")
    config = read_recipe(HOME / "exp" / "SEAL.yaml", []).config
    assert not uses_existing_cluster(config)
    prepare(config, {})
    assert config.ray_kwargs.ray_init.address == "local"


def test_a_token_is_tried_first_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert authentication_modes({}) == ("disabled",)
    assert authentication_modes({"RAY_AUTH_TOKEN": "x"}) == ("token", "disabled")
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("x")
    assert authentication_modes({}) == ("token", "disabled")
    assert authentication_modes({"RAY_AUTH_MODE": "disabled"}) == ("disabled",)


def test_a_joined_cluster_is_not_sized_and_its_workers_get_the_runs_environment(config):
    alone = config.copy()
    alone.ray_kwargs.ray_init.num_cpus = 7
    sized = alone.copy()
    prepare(alone, {"HF_HOME": "/models"})
    assert alone == sized
    alone.ray_kwargs.ray_init.num_cpus, alone.trainer.n_gpus_per_node = None, 1000
    prepare(alone, {})
    assert alone.ray_kwargs.ray_init.num_cpus == 3002

    config.ray_kwargs.ray_init.address = "10.0.0.1:6379"
    config.env_service.env_url = "http://10.0.0.1:8082"
    with open_dict(config.seal):
        config.seal.process_env.HF_TOKEN, config.seal.rollout.harness_env = "hf_x", ["ASKED_BY_AN_AGENT"]
    shell = {"HF_HOME": "/models", "PYTHONPATH": "/extra", "BFCL_TOKEN": "secret", "SSH_TTY": "/dev/pts/0"}
    shell |= {vllm_plugin.VARIABLE: "own", KEY_VARIABLE: "key", "ASKED_BY_AN_AGENT": "1"}
    prepare(config, shell)
    arguments = OmegaConf.to_container(config.ray_kwargs.ray_init)
    assert not set(arguments) & set(SIZES)
    environment = arguments["runtime_env"]["env_vars"]
    assert {name: environment[name] for name in ("HF_TOKEN", KEY_VARIABLE, "ASKED_BY_AN_AGENT")} == {
        "HF_TOKEN": "hf_x",
        KEY_VARIABLE: "key",
        "ASKED_BY_AN_AGENT": "1",
    }
    hide_secrets(config)
    told = OmegaConf.to_yaml(config, resolve=True)  # as trackers get it
    assert not any(secret in told for secret in ("hf_x", "/extra", "secret", "ASKED_BY_AN_AGENT: "))
    assert environment["PYTHONPATH"] == f"{HOME}:/extra"
    assert environment["HF_HOME"] == "/models" and environment["BFCL_TOKEN"] == "secret"
    assert environment["VERL_PLATFORM"] == "cpu" and "SSH_TTY" not in environment
    assert environment[vllm_plugin.VARIABLE] == "own"
    assert all(isinstance(value, str) for value in environment.values())


def test_a_validation_alone_does_not_become_a_training(config):
    config.trainer.val_only, config.trainer.val_before_train = True, False
    assert "trainer.val_before_train" in refused(config, preflight.CHECKS["validations"])
    config.trainer.val_before_train = True
    preflight.CHECKS["validations"](Recipe.of(config))


def test_a_runs_own_checkpoints_are_room_for_the_next(config, tmp_path, monkeypatch):
    config.trainer.default_local_dir = str(tmp_path)
    config.seal.min_free_gb = 3e-6  # some 3,200 bytes
    monkeypatch.setattr(places.shutil, "disk_usage", lambda _: SimpleNamespace(free=2000))
    assert "seal.min_free_gb" in refused(config, preflight.CHECKS["disk"])
    (tmp_path / "global_step_1" / "actor").mkdir(parents=True)
    (tmp_path / "global_step_1" / "actor" / "weights.pt").write_bytes(bytes(2000))
    preflight.CHECKS["disk"](Recipe.of(config))
