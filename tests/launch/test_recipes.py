"""Recipes compose, say what is wrong in one sentence, and differ only where they say."""

import json
from pathlib import Path

import pytest
from omegaconf import DictConfig, OmegaConf, open_dict
from transformers.utils.chat_template_utils import render_jinja_template

from env_service.environments.base import Guard
from env_service.environments.bfcl.catalog import available_tools, load_tasks
from env_service.environments.bfcl.formats import format_names, get_format
from env_service.environments.registry import get_environment, register
from seal.launch import recipe as recipes
from seal.launch.checks.preflight import CHECKS
from seal.launch.recipe import read_recipe
from seal.method.diagnosis.rules import taxonomy_of
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.evolve import cues_in_use, initial_omega
from seal.settings import EnvServiceSettings, SealSettings
from seal.settings.base import recipe_defaults
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from shelf.operate.step import step_plan
from tests.support.recipes import composed

EXP = HOME / "exp"
RECIPES = [path for folder in ("", "backbones", "environments") for path in sorted((EXP / folder).glob("*.yaml"))]
ABLATIONS = sorted(path.stem for path in (EXP / "ablation").glob("*.yaml"))
QUICKSTART = EXP / "quickstart.yaml"

every_recipe = pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(HOME)))


@every_recipe
def test_every_recipe_composes_and_its_settings_are_accepted(recipe):
    config = composed(recipe)
    assert SealSettings.of(config).seed == 0
    assert EnvServiceSettings.of(config).env_type == (recipe.stem if recipe.stem.startswith("tau2_") else "bfcl")
    assert config.trainer.v1.trainer_mode == ("seal_async" if recipe.stem.endswith("_async") else "seal")


@every_recipe
def test_every_recipe_has_a_plan_that_divides(recipe):
    config = composed(recipe)
    plan = step_plan(config)
    assert plan.rows == config.data.train_batch_size * config.actor_rollout_ref.rollout.n
    assert plan.rows == plan.ranks * plan.rows_per_rank * plan.mini_batches
    assert plan.engines * config.actor_rollout_ref.rollout.tensor_model_parallel_size == plan.devices
    assert plan.longest <= plan.model and plan.longest <= plan.packed
    for gpus in (1, 4, 8):
        config.trainer.n_gpus_per_node = gpus
        plan = step_plan(config)
        assert plan.devices == plan.ranks == plan.engines == gpus


@every_recipe
def test_every_recipe_is_accepted_by_verls_own_configuration_classes(recipe):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.workers.config import HFModelConfig

    config = composed(recipe)
    validate_config(config=config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    reference = omega_conf_to_dataclass(as_verl_reads_the_reference(config))
    for block in ("algorithm", "distillation", "skip"):
        omega_conf_to_dataclass(config[block])
    # The weights are not here, so the model's block is read with the small policy's.
    config.actor_rollout_ref.model.path = str(HOME / "data" / "quickstart_policy")
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model, HFModelConfig)

    assert actor.engine.strategy == reference.engine.strategy == "fsdp2"
    assert not actor.engine.forward_only and reference.engine.forward_only
    assert actor.use_dynamic_bsz and model.use_remove_padding
    assert rollout.name == "vllm" and rollout.calculate_log_probs
    assert need_reference_policy(config) and not need_critic(config)


@pytest.mark.parametrize("coefficient", [0, 0.001])
def test_a_kl_term_without_weight_needs_no_reference_policy(coefficient):
    from verl.trainer.ppo.utils import need_reference_policy

    from seal.training.runner import drop_idle_reference

    config = composed(QUICKSTART, f"actor_rollout_ref.actor.kl_loss_coef={coefficient}")
    drop_idle_reference(config)
    assert need_reference_policy(config) == bool(coefficient)


def test_trackers_get_no_password_of_an_address_and_no_key_of_a_command():
    from seal.training.runner import hide_secrets

    user = ("seal.user.base_url=https://me:hush@model/v1", "seal.user.model=crowd")
    service, agent = (
        "env_service.env_url=[http://me:hush@a:1,http://b:2]",
        "seal.rollout.harness=[env,'--api-key=hush']",
    )
    config = composed(QUICKSTART, *user, service, agent)
    before = OmegaConf.to_yaml(config, resolve=True)
    hide_secrets(config)
    told = OmegaConf.to_yaml(config, resolve=True)
    assert before.count("hush") == 3 and "hush" not in told
    assert config.seal.user.base_url == "https://model/v1" and config.env_service.env_url == [
        "http://a:1",
        "http://b:2",
    ]


def as_verl_reads_the_reference(config: DictConfig) -> DictConfig:
    """The reference's block as verl's worker renames it before it reads it."""
    reference = config.actor_rollout_ref.ref.copy()
    with open_dict(reference):
        reference.ppo_mini_batch_size = config.actor_rollout_ref.actor.ppo_mini_batch_size
        reference.ppo_micro_batch_size = reference.pop("log_prob_micro_batch_size")
        reference.ppo_micro_batch_size_per_gpu = reference.pop("log_prob_micro_batch_size_per_gpu")
        reference.use_dynamic_bsz = reference.pop("log_prob_use_dynamic_bsz")
        reference.ppo_max_token_len_per_gpu = reference.pop("log_prob_max_token_len_per_gpu")
    return reference


def test_one_gpu_makes_the_same_updates_as_four():
    four, one = composed(EXP / "SEAL.yaml"), composed(EXP / "SEAL_1gpu.yaml")
    assert (one.trainer.n_gpus_per_node, four.trainer.n_gpus_per_node) == (1, 4)
    sharding, optimizer = one.actor_rollout_ref.actor.fsdp_config, one.actor_rollout_ref.actor.optim
    assert sharding.offload_policy and sharding.use_no_sync_for_gradient_accumulation
    assert optimizer.override_optimizer_config == {"fused": True} and one.seal.process_env.OMP_NUM_THREADS
    for config in (one, four):
        del config.trainer, config.reward, config.seal.name, config.seal.run_dir, config.seal.process_env
        del config.seal.min_memory_gb, config.seal.step_deadline_s, config.seal.stop_grace_s
        del config.actor_rollout_ref.actor.fsdp_config, config.actor_rollout_ref.ref.fsdp_config
        del config.actor_rollout_ref.actor.optim.override_optimizer_config
        del config.actor_rollout_ref.rollout.n_gpus_per_node, config.actor_rollout_ref.rollout.trace
        del config.actor_rollout_ref.rollout.gpu_memory_utilization
        del config.data.train_files, config.data.val_files
    assert one == four


def test_the_released_recipe_is_the_public_releases():
    config = SealSettings.of(composed(EXP / "SEAL_released.yaml"))
    evolve = config.interface.evolve
    assert config.diagnosis.taxonomy == "release"
    assert initial_omega(evolve, taxonomy_of("release")).cues == ("schema_required", "schema_values", "schema_format")
    assert (evolve.prevalence_of, evolve.hysteresis, config.reweighting.confidence) == ("failures", False, 32)
    assert not evolve.adaptive and config.reweighting.dynamic and config.closed_loop
    assert config.data == SealSettings.of(composed(EXP / "SEAL.yaml")).data and config.data.train.subset is None


@pytest.mark.parametrize("mode", format_names())
def test_every_cue_of_a_run_has_words_in_its_prompt_mode(mode):
    """A cue without words would be counted and recorded as shown."""
    evolve = read_recipe(QUICKSTART, [f"env_service.prompt_mode={mode}"]).settings.interface.evolve
    told = {name for name, cue in catalogue().items() if cue.kind != "feedback" and _start(mode, name) != _start(mode)}
    assert {cue.name for cue in cues_in_use(evolve) if cue.kind != "feedback"} == told - {"right_service"}
    assert ("schema_types" in told) == ("schema_values" in told) == (not mode.startswith("compact"))


def _start(mode, *cues):
    """The first messages of a task under these cues, one of whose tools has arguments of all kinds."""
    params = {"tool_prompt_mode": mode, "omega": Omega.of(cues).to_json()}
    return get_environment("bfcl").open("multi_turn_base_50", params, Guard()).start()["state"]


def test_a_mode_without_words_leaves_a_cue_out_of_its_environment_alone():
    register("keep", "tests.env_service.test_own_documents:Keep")
    modes = ("env_service.prompt_mode=compact", "+env_service.prompt_modes.keep=hermes")
    trained, validated = (
        read_recipe(QUICKSTART, [*modes, f"seal.data.{key}"]).settings.interface.evolve.left_out
        for key in ("train.mixture=[{tasks:bfcl},{tasks:keep}]", "val=[{environment:keep}]")
    )
    assert trained == ("bfcl/schema_types", "bfcl/schema_values")
    assert validated == ("schema_types", "schema_values")  # a validation shows no cue


def test_low_rank_adapters_start_from_loaded_weights():
    config = composed(EXP / "SEAL_lora.yaml").actor_rollout_ref
    assert config.model.lora_rank == 32 and config.rollout.load_format == "safetensors"


def test_the_toolace_template_writes_what_the_package_sends():
    """Plain Llama headers, results under the role ipython; verl's token builder calls that role `tool`."""
    config = composed(EXP / "backbones" / "toolace_2_llama_3_1_8b.yaml")
    form = get_format(config.env_service.prompt_mode)
    task = load_tasks()["multi_turn_base_0"]
    messages = [
        {"role": "system", "content": form.system(available_tools(task, 0))},
        {"role": "user", "content": form.user(task.users[0])},
        {"role": "assistant", "content": "[ls()]"},
        *form.results(["a", "b"]),
    ]
    expected = "<|begin_of_text|>" + "".join(
        f"<|start_header_id|>{each['role']}<|end_header_id|>\n\n{each['content']}<|eot_id|>" for each in messages
    )
    expected += "<|start_header_id|>assistant<|end_header_id|>\n\n"
    for result in ("tool", "ipython"):
        dialogue = [{**each, "role": result if each["role"] == "ipython" else each["role"]} for each in messages]
        rendered, _ = render_jinja_template(
            [dialogue],
            chat_template=config.actor_rollout_ref.model.custom_chat_template,
            add_generation_prompt=True,
            bos_token="<|begin_of_text|>",
        )
        assert rendered == [expected]


def test_the_shared_recipe_shows_every_setting_with_its_default():
    config = OmegaConf.to_container(composed(EXP / "SEAL.yaml"))
    changed = {"name", "run_dir", "process_env", "logprob_mean_tolerance", "min_free_gb", "min_memory_gb"}
    defaults = recipe_defaults(SealSettings)
    assert list(config["seal"]) == list(defaults)
    assert {key for key, value in config["seal"].items() if value != defaults[key]} == changed
    assert config["env_service"] == recipe_defaults(EnvServiceSettings)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["seal.seed=3", "seal.seed=4", "trainer.logger=[console]", "seal.name='a b'", "data.train_batch_size=null"],
        ["ablation=vanilla", "trainer.total_training_steps=${trainer.test_freq}"],
        ["seal.data.train={categories: [base], mixture: []}", "seal.data.train.limit=2", "ablation=vanilla"],
        ["seal.seed=3", "+seal.process_env.B=2", "~trainer.logger", "seal.process_env.B=3"],
    ],
    ids=str,
)
def test_what_a_kept_composition_becomes_is_what_hydra_composes(overrides):
    whole = recipes._hydra.__wrapped__(QUICKSTART, tuple(overrides), 0)
    for _ in range(2):  # the second time it is kept
        kept = recipes._compose(QUICKSTART, overrides)
        assert OmegaConf.to_container(kept) == OmegaConf.to_container(whole)
        assert OmegaConf.is_struct(kept) and OmegaConf.is_struct(whole)


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("seal.seed=1,2", "it gives several values; write a list as [1,2]."),
        ("seal.sed=1", "Key 'sed' does not exist; did you mean seal.seed?"),
        (
            "seal.seed=[a",
            "no viable alternative at input '[a'; write KEY=VALUE without a dash before it, and quote a value "
            "with special characters: \"KEY='a=b'\".",
        ),
        ("--seal.seed=1", "quote a value with special characters: \"KEY='a=b'\"."),
        ("actor_rollout_ref.model.path=/m/lr=1/x", "quote a value with special characters: \"KEY='a=b'\"."),
        ("+seal.seed=1", "An item is already at 'seal.seed'."),
        ("trainer.experiment_name=../../x", "it must be a folder's name, without /."),
        ("trainer.experiment_name=..", "it must be a folder's name, without /."),
    ],
)
def test_an_override_that_cannot_be_set_is_one_sentence_with_its_reason(override, reason):
    with pytest.raises(LaunchError) as error:
        read_recipe(QUICKSTART, [override])
    said = str(error.value)
    assert said.startswith(f"The override {override!r} does not fit") and said.endswith(reason) and "\n" not in said


@pytest.mark.parametrize(
    ("recipe", "overrides", "named"),
    [
        (Path("exp/none.yaml"), [], "exp/none.yaml"),
        (HOME / "mkdocs.yml", [], "mkdocs.yaml"),
        (QUICKSTART, ["ablation=nothing"], "without_closed_loop"),
        (QUICKSTART, ["trainer.n_gpus=3"], "did you mean trainer.n_gpus_per_node"),
        (QUICKSTART, ["seal.reweighting.alfa=3"], "seal.reweighting.alfa"),
        (QUICKSTART, ["alpha"], "KEY=VALUE"),
        (EXP / "SEAL.yaml", ["seal.data.val.limit=10"], "seal.data.val.limit=10"),
        (QUICKSTART, ["trainer.experiment_name=???"], "trainer.experiment_name"),
        (QUICKSTART, ["actor_rollout_ref.model.path=???"], "must set actor_rollout_ref.model.path"),
        (EXP / "experiments" / "one_gpu.yaml", [], "its defaults name neither base/seal nor a recipe that does"),
    ],
)
def test_a_wrong_recipe_or_override_is_one_sentence(recipe, overrides, named):
    with pytest.raises(LaunchError) as error:
        read_recipe(recipe, overrides)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("seal.enabled=off", "must be a valid boolean"),
        ("seal.checkpoints.keep_best=1", "must be a valid boolean"),
        ("seal.enabled=null", "must be a valid boolean"),
        ("seal.seed=abc", "must be a valid integer"),
        ("seal.diagnosis.taxonomy=papper", "choose one of: paper, release"),
        ("seal.data.val=[{split: eval, limt: 3}]", "did you mean seal.data.val[0].limit?"),
        ("+seal.reweighting.warmup_steps=3", "is not a setting"),
        ("+seal.reweighting.rho.odd=2", "the paper taxonomy has no odd"),
        ("seal.reweighting.rho.odd=2", "put + before it"),
        ("+seal.reweighting.alfa=2", "did you mean seal.reweighting.alpha?"),
        ("+reweighting.rho.pass=2", "is not a block"),
        ("actor_rollout_ref.actor.use_kl_loss=yes", "must be true or false"),
        ("actor_rollout_ref.actor.optim.lr=fast", "must be a number"),
        ("trainer.test_freq=true", "must be a number"),
        ("actor_rollout_ref.actor.loss_agg_mode=3", "must be a text or a list"),
        ("trainer.test_freq=null", "must be a number"),
        ("trainer.default_local_dir=null", "must be a text"),
        ("trainer.experiment_name=null", "must be a text"),
        ("actor_rollout_ref.rollout.seed=null", "must be a number"),
        ("seal=null", "must be a block of settings"),
        ("seal=3", "seal is 3; it must be a block of settings"),
        ("trainer=8", "trainer is 8; it must be a block of settings"),
        ("actor_rollout_ref.actor.optim=null", "must be a block of settings"),
    ],
)
def test_a_value_that_nothing_could_use_is_refused(override, wanted):
    with pytest.raises(LaunchError) as error:
        read_recipe(HOME / "exp" / "SEAL.yaml", [override])
    sentence = str(error.value)
    assert sentence.startswith(f"The override {override!r} does not fit {HOME}/exp/SEAL.yaml: ")
    assert wanted in sentence and "\n" not in sentence


def test_a_recipe_of_the_repository_is_found_from_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_recipe(Path("exp/quickstart.yaml"), []).name == "quickstart"


def test_a_wrong_value_in_a_recipe_names_the_file(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("defaults: [quickstart, _self_]\nseal: {seed: abc}\n")
    with pytest.raises(LaunchError) as error:
        read_recipe(mine, ["trainer.total_epochs=2"])
    assert str(error.value) == f"{mine}: seal.seed is 'abc'; it must be a valid integer."


@pytest.mark.parametrize(
    "override",
    [
        "actor_rollout_ref.rollout.n=1.5",
        "data.train_batch_size=x",
        "trainer.n_gpus_per_node=two",
        "trainer.nnodes=true",
        "trainer.total_epochs=true",
        "trainer.total_training_steps=abc",
    ],
)
def test_what_a_plan_counts_is_a_whole_number(override):
    with pytest.raises(LaunchError) as error:
        CHECKS["step plan"](read_recipe(HOME / "exp" / "SEAL.yaml", [override]))
    assert override.split("=")[0] in str(error.value) and "must be a" in str(error.value)


def test_the_main_recipe_writes_out_the_methods_defaults():
    def leaves(value, key=()):
        if isinstance(value, dict):
            return {path: leaf for name, part in value.items() for path, leaf in leaves(part, (*key, name)).items()}
        return {key: value}

    written = leaves(OmegaConf.to_container(OmegaConf.load(EXP / "SEAL.yaml"))["seal"])
    defaults = leaves(recipe_defaults(SealSettings))
    assert len(written) == 11 and written.items() <= defaults.items()


def test_one_clip_ratio_is_both():
    config = read_recipe(HOME / "exp" / "SEAL.yaml", ["actor_rollout_ref.actor.clip_ratio=0.1"]).config
    actor = config.actor_rollout_ref.actor
    assert actor.clip_ratio_low == actor.clip_ratio_high == 0.1


def test_paper_settings_are_the_shared_defaults():
    config = composed(EXP / "SEAL.yaml")
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    assert (actor.kl_loss_coef, actor.kl_loss_type) == (0.001, "low_var_kl")
    # The keys that verl's loss and engine read: it falls back to clip_ratio only where these are null.
    assert (actor.clip_ratio_low, actor.clip_ratio_high, actor.clip_ratio_c) == (0.2, 0.2, 10)
    assert (actor.optim.clip_grad, actor.loss_agg_mode, actor.entropy_coeff) == (1.0, "token-mean", 0)
    assert (rollout.n, rollout.temperature, rollout.val_kwargs.temperature) == (8, 1.0, 0)
    assert config.seal.reweighting.w_max == 2.0


CHANGES = {
    "vanilla": {"enabled": False},
    "without_environment": {"interface": {"enabled": False}},
    "without_reweighting": {"reweighting": {"enabled": False}},
    "without_closed_loop": {"closed_loop": False, "interface": {"evolve": {"adaptive": ["guideline"]}}},
    "random_labels": {"diagnosis": {"source": "random"}},
    "permuted_labels": {"diagnosis": {"source": "permuted"}},
}


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("recipe", [EXP / "SEAL.yaml", QUICKSTART], ids=lambda path: path.stem)
def test_an_ablation_changes_what_it_says_and_nothing_else(recipe, name):
    ablated = composed(recipe, f"ablation={name}")
    assert ablated.trainer.experiment_name == f"{recipe.stem}-{name}"
    other = json.dumps(OmegaConf.to_container(composed(recipe, "trainer.experiment_name=OTHER_NAME")))
    expected = OmegaConf.create(json.loads(other.replace("OTHER_NAME", f"{recipe.stem}-{name}")))
    expected.seal = OmegaConf.merge(expected.seal, CHANGES[name])
    assert ablated == expected


def test_an_ablation_of_a_backbone_keeps_both():
    config = read_recipe(EXP / "backbones" / "qwen2_5_3b.yaml", ["ablation=vanilla"]).config
    assert config.trainer.experiment_name == "SEAL-qwen2_5_3b-vanilla"
    assert config.actor_rollout_ref.model.path == "Qwen/Qwen2.5-3B-Instruct" and not config.seal.enabled


def test_a_run_is_named_after_its_recipe_and_its_results_land_beside_it(tmp_path, monkeypatch):
    mine = tmp_path / "mine.yaml"
    mine.write_text("defaults: [quickstart, _self_]\n")
    monkeypatch.chdir("/")
    config = read_recipe(mine, []).config
    assert config.trainer.experiment_name == "mine"
    assert config.seal.run_dir == str(tmp_path / "experiments" / "mine")
    assert config.trainer.default_local_dir == str(tmp_path / "experiments" / "mine" / "checkpoints")
    assert read_recipe(HOME / "exp" / "quickstart.yaml", []).config.seal.run_dir == str(
        HOME / "experiments" / "quickstart"
    )
    (tmp_path / "start").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("start", "~/start"):
        own = read_recipe(mine, [f"actor_rollout_ref.model.path={path}"]).config
        assert own.actor_rollout_ref.model.path == str(tmp_path / "start")
    assert Path(config.actor_rollout_ref.model.path) == HOME / "data" / "quickstart_policy"
    assert Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).is_file()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("seal: {enabeld: false}", "did you mean seal.enabled?"),
        ("seal: {interface: {evolve: {prevalance: 0.2}}}", "did you mean seal.interface.evolve.prevalence?"),
        ("env_service: {prompt_mod: compact}", "did you mean env_service.prompt_mode?"),
        ("seal:\n\tseed: 1", "mine.yaml, or what it names, is not YAML"),
        ("seal: {seed: 1}\nseal: {seed: 2}", "duplicate key"),
    ],
)
def test_a_slip_in_a_recipe_file_is_named(tmp_path, text, named):
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"defaults: [quickstart, _self_]\n{text}\n")
    with pytest.raises(LaunchError) as error:
        read_recipe(mine, [])
    assert named in str(error.value) and "\n" not in str(error.value)


def test_the_main_run_has_the_papers_sizes():
    config = composed(EXP / "SEAL.yaml")
    assert (config.data.train_batch_size, config.actor_rollout_ref.actor.ppo_mini_batch_size) == (32, 8)
    assert (config.data.max_prompt_length, config.data.max_response_length) == (8192 + 1024, 4096)
    assert config.actor_rollout_ref.rollout.max_model_len == 16384
    assert (config.trainer.n_gpus_per_node, config.trainer.total_epochs, config.trainer.test_freq) == (4, 6, 10)
    assert config.actor_rollout_ref.actor.optim.lr == 1e-6
