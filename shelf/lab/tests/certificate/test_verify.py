"""What a certificate says is computed again; whatever was changed in it is found, where it is."""

import copy
import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from env_service.environments.bfcl.task_file import write_task_file
from seal.interface.artefact import InterfaceArtefact
from seal.interface.cues import Omega
from seal.system.files import write_json
from seal.system.paths import HOME
from shelf.lab.certificate.collect import records
from shelf.lab.certificate.fields import LOST_HASHED, STEP_HASHED, TRAJECTORY_HASHED
from shelf.lab.certificate.file import read, write
from shelf.lab.certificate.verify import verify
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.support.played_run import SMALL, mixture_of, write_run

ABLATIONS = sorted(path.stem for path in (HOME / "exp" / "ablation").glob("*.yaml"))
ONCE = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

DIGEST = "8391cdc309d80320d50b75b2f12466ee3ebaa7bc6aec6b50bb75ffa469fcedfe"
"""Of the certificate of a real run."""

Path = tuple[str | int, ...]


def test_an_honest_certificate_holds(certificate):
    found = verify(certificate, processes=0)
    assert found.holds, found.disagreements[0]
    assert (found.steps, found.trajectories) == (2, 12 + 2 * found.validations // 2)
    assert found.counts["C_t"] == found.counts["rho"] == (2, 2)
    assert found.counts["weights"].of == found.counts["advantages"].of == 12
    for what in ("calls that exceeded a limit of the service", "trajectories lost to infrastructure"):
        assert found.taken[what]


def test_a_step_of_a_real_run_holds():
    """The first step of a quickstart on a CPU, as verl, vLLM and the service made it."""
    found = verify(HOME / "tests" / "certificate" / "quickstart.seal.gz", DIGEST, processes=0)
    # The digest of Omega covers the wording of every cue, also of those that were not on.
    assert {each.place.field for each in found.disagreements} <= {"steps.omega.digest"}, found.disagreements[0]
    assert found.counts["dialogues"] == found.counts["advantages"] == found.counts["weights"] == (64, 64)


def test_the_same_run_gives_the_same_file(run, certificate, tmp_path):
    write(records(run), tmp_path / "again.seal.gz")
    assert (tmp_path / "again.seal.gz").read_bytes() == certificate.read_bytes()


def test_paths_of_the_checkout_say_nothing_of_the_machine(contents):
    launches = [value for kind, value in contents if kind == "launch"]
    assert launches and str(HOME) not in json.dumps(launches)
    assert launches[0]["config"]["actor_rollout_ref"]["model"]["path"] == "data/quickstart_policy"


def test_other_processes_find_the_same(certificate):
    alone, together = verify(certificate, processes=0), verify(certificate, processes=2)
    assert together.holds and together.counts == alone.counts


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_ablation_holds(ablation, tmp_path):
    assert_holds(write_run(tmp_path / "run", *SMALL, f"ablation={ablation}", steps=3, validations=()))


@pytest.mark.parametrize(
    "overrides",
    [
        ("seal.diagnosis.source=shuffled", "seal.diagnosis.noise=0.3"),
        ("seal.diagnosis.source=constant", "seal.diagnosis.blame=own"),
        ("seal.diagnosis.taxonomy=release", "seal.reward.mode=t3rl"),
        ("seal.reward.cut=exclude", "seal.reward.mode=capped", "seal.rollout.max_steps=5"),
        ("seal.reweighting.per_turn=true", "seal.reweighting.sign_aware=true", "seal.reweighting.renormalise=nonzero"),
        ("ablation=balanced", "seal.reweighting.per_turn=true"),
        ("algorithm.norm_adv_by_std_in_grpo=false", "actor_rollout_ref.rollout.val_kwargs.n=2"),
        ("seal.interface.share=0.67",),
        ("seal.interface.evolve={kinds: [schema, feedback, guideline], per_category: true, min_count: 1}",),
        ("env_service.prompt_mode=bfcl_qwen_fc", "data.max_prompt_length=16384", "data.max_response_length=8192",
         "actor_rollout_ref.rollout.max_model_len=32768", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768"),
    ],
)  # fmt: skip
def test_every_part_of_the_method_holds(overrides, tmp_path):
    assert_holds(write_run(tmp_path / "run", *SMALL, *overrides, steps=2, validations=(2,), lost=0.2, late=0.02))


def test_a_run_that_was_resumed_with_other_settings_holds(tmp_path):
    """As a resumed trainer does: C_t, rho and Omega go on, what the recipe fixes is the new recipe's."""
    resumed = {1: (), 2: ("seal.diagnosis.window=2", "seal.reweighting.alpha=0.5", "seal.interface.enabled=false")}
    run = write_run(tmp_path / "run", *SMALL, steps=4, validations=(0, 2, 4), resumed=resumed)
    assert_holds(run)
    launches = [json.loads(line) for line in (run / "seal_log" / "launches.jsonl").read_text().splitlines()]
    assert [launch["step"] for launch in launches] == [0, 1, 2]


def test_a_run_that_starts_with_an_earlier_omega_holds_without_its_file(tmp_path):
    omega = Omega.of(("recover",), 3)
    path = tmp_path / "interface.json"
    write_json(InterfaceArtefact("earlier", 3, "compact", "paper", omega, omega.digest, "1").to_json(), path)
    kinds = "seal.interface.evolve={kinds: [feedback, guideline], adaptive: [feedback, guideline]}"
    run = write_run(tmp_path / "run", *SMALL, kinds, f"seal.interface.initial={path}", steps=2, validations=())
    path.unlink()
    assert_holds(run)
    step = json.loads((run / "seal_log" / "steps.jsonl").read_text().splitlines()[0])
    assert (step["omega"]["version"], step["omega"]["cues"]) == (3, ["recover"])
    log = run / "seal_log" / "launches.jsonl"
    log.write_text(log.read_text().replace('"cues": {"*": ["recover"]}', '"cues": {"*": ["caution"]}'))
    write(records(run), run / "c.seal.gz")
    assert not verify(run / "c.seal.gz", processes=0).holds


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run on the benchmark's and on synthesised tasks, which was resumed; their file lies beside it."""
    folder = tmp_path_factory.mktemp("mixed")
    write_task_file(synthesise(Grammar(), 12, 3, "train"), folder / "tasks.jsonl")
    overrides = (*SMALL, *mixture_of(folder / "tasks.jsonl"))
    return write_run(folder / "run", *overrides, steps=2, validations=(0, 2), resumed={1: ()})


def test_synthesised_tasks_are_verified_where_their_file_is_not(mixed, tmp_path):
    """The certificate holds the tasks; the commands run in processes that have not read the file."""
    file, elsewhere = mixed.parent / "tasks.jsonl", mixed.parent / "elsewhere.jsonl"
    done = seal("certify", mixed, "--out", tmp_path / "c.seal.gz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    contents = [(record.kind, record.value) for record in read(tmp_path / "c.seal.gz")]
    played = {value["task_id"] for kind, value in contents if kind in ("training", "validation")}
    made = {value["id"] for kind, value in contents if kind == "task"}
    assert made and {task for task in played if task.startswith("synth_")} <= made
    assert any(task.startswith("multi_turn_") for task in played)
    file.rename(elsewhere)
    try:
        done = seal("verify", tmp_path / "c.seal.gz", "--processes", "1", cwd=tmp_path)
        assert done.returncode == 0 and "Everything agrees." in done.stdout, done.stdout + done.stderr
        with pytest.raises(ValueError, match=r"synth_\S+ cannot be certified without its task file: put .*tasks.jsonl"):
            list(records(mixed))
    finally:
        elsewhere.rename(file)
    number = next(n for n, (kind, _) in enumerate(contents) if kind == "task")
    forgery = copy.deepcopy(contents)
    forgery[number][1]["reference"][0].append(forgery[number][1]["reference"][0][0])
    write(forgery, tmp_path / "forged.seal.gz")
    with pytest.raises(ValueError, match="is not the id of its content"):
        verify(tmp_path / "forged.seal.gz", processes=0)


def test_a_withdrawal_is_not_part_of_a_certificate(run, certificate, tmp_path):
    copied = shutil.copytree(run, tmp_path / "small")
    shutil.copytree(copied / "validation_log", copied / "seal_log" / "withdrawal")
    write(records(copied), tmp_path / "c.seal.gz")
    assert (tmp_path / "c.seal.gz").read_bytes() == certificate.read_bytes()


def test_groups_that_infrastructure_dropped_hold(tmp_path):
    run = write_run(tmp_path / "run", *SMALL, steps=2, validations=(), lost=0.9)
    steps = [json.loads(line) for line in (run / "seal_log" / "steps.jsonl").read_text().splitlines()]
    assert any(step["groups_dropped"] for step in steps)
    assert_holds(run)


def assert_holds(run) -> None:
    write(records(run), run / "c.seal.gz")
    found = verify(run / "c.seal.gz", processes=0)
    assert found.holds, found.disagreements[0]


# --- changes ---------------------------------------------------------------------------


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """Every leaf of a JSON value, and every list with two different entries or more."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        if len(value) > 1 and value[0] != value[-1]:
            yield path
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


def changed(value: Any, draw: Any) -> Any:
    """A leaf with another value, or a list in another order, shorter or longer."""
    if isinstance(value, list):
        how = draw(st.sampled_from(["swap", "drop", "repeat"]))
        return {"swap": [value[-1], *value[1:-1], value[0]], "drop": value[:-1], "repeat": [*value, value[-1]]}[how]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return draw(st.sampled_from([value + 1, value - 1, -value - 2, 0.5 if value != 0.5 else 0.25]))
    if value is None:
        return draw(st.sampled_from([0, "x", False]))
    return draw(st.sampled_from([value + "x", value[1:] if value else "y", "", value.swapcase()]))


def with_change(contents, draw, wanted) -> tuple[list, int, Path] | None:
    """The records with one leaf of one record changed; None if the draw changes nothing."""
    number = draw(st.sampled_from([n for n, (kind, _) in enumerate(contents) if kind in wanted]))
    kind, value = contents[number]
    path = draw(st.sampled_from(list(leaves(value))))
    new = copy.deepcopy(value)
    at = new
    for key in path[:-1]:
        at = at[key]
    before = at[path[-1]]
    at[path[-1]] = changed(before, draw)
    if at[path[-1]] == before:
        return None
    return [*contents[:number], (kind, new), *contents[number + 1 :]], number, path


def forged(contents, path) -> Any:
    """What a verification finds in records whose hashes were made to fit; None if it refuses the file."""
    write(contents, path)
    try:
        return verify(path, processes=0)
    except ValueError:
        return None


def only_hashed(kind: str, value: Any, path: Path) -> bool:
    """Whether the lab's page says that a forger may change this leaf."""
    if kind == "step":
        return path[0] == "steps" and path[1] in STEP_HASHED
    if kind == "figures":
        return path == ("launch",)
    said = path[0] == "output" and path[-1] == "content" and value["output"][path[1]]["role"] == "assistant"
    return said or path[0] in (LOST_HASHED if value.get("infra") else TRAJECTORY_HASHED)


@ONCE
@given(data=st.data())
def test_a_change_without_new_hashes_is_found_in_its_record(data, certificate, contents, tmp_path_factory):
    change = with_change(contents, data.draw, {kind for kind, _ in contents})
    if change is None:
        return
    after, number, _ = change
    original = gzip.decompress(certificate.read_bytes()).splitlines(keepends=True)
    kind, value = after[number]
    text = json.dumps({kind: value}, ensure_ascii=False, separators=(",", ":")).encode()
    original[number] = _line(original[number], text)
    path = tmp_path_factory.mktemp("changed") / "c.seal.gz"
    path.write_bytes(gzip.compress(b"".join(original)))
    try:
        found = verify(path, processes=0)
    except ValueError:
        return  # refused: another version, or other benchmark data
    assert not found.holds
    assert any(each.place.record == number and "hash" in each.problem for each in found.disagreements)


def _line(line: bytes, text: bytes) -> bytes:
    """The line with its hash and another record."""
    return line[: line.index(b'"record":')] + b'"record":' + text + b"}\n"


@ONCE
@given(data=st.data())
def test_a_forged_value_that_can_be_recomputed_is_found_where_it_is(data, contents, tmp_path_factory):
    change = with_change(contents, data.draw, {"training", "validation", "step", "figures", "end"})
    if change is None:
        return
    after, number, path = change
    note(f"{contents[number][0]} {number}, {path}")
    kind, value = contents[number]
    found = forged(after, tmp_path_factory.mktemp("forged") / "c.seal.gz")
    if found is None or (found.holds and kind != "end" and only_hashed(kind, value, path)):
        return
    assert not found.holds, (kind, path)
    if kind == "end" or only_hashed(kind, value, path):
        return
    if path[0] == "step":
        return
    assert found.disagreements[0].place.step in (value["step"], None)
    if kind in ("training", "validation") and path[0] not in ("task_id", "sample", "data_source"):
        places = [each.place for each in found.disagreements if each.place.task == value["task_id"]]
        fields = {str(place.field) for place in places if place.sample == value["sample"]}
        # Which message was cut, and where its tokens are, shows in what follows from it.
        assert fields if path[0] in ("spans", "truncated") else any(each.startswith(path[0]) for each in fields)


@ONCE
@given(data=st.data())
def test_a_forger_cannot_remove_repeat_or_move_a_record(data, contents, tmp_path_factory):
    numbers = [n for n, (kind, _) in enumerate(contents) if kind not in ("head", "launch", "task")]
    one, other = data.draw(st.lists(st.sampled_from(numbers), min_size=2, max_size=2, unique=True))
    after = list(contents)
    how = data.draw(st.sampled_from(["remove", "repeat", "swap"]))
    if how == "remove":
        del after[one]
    elif how == "repeat":
        after.insert(other, after[one])
    else:
        after[one], after[other] = after[other], after[one]
    if after == contents:
        return
    found = forged(after, tmp_path_factory.mktemp("moved") / "c.seal.gz")
    assert found is None or not found.holds


def test_labels_that_fit_each_other_but_not_what_was_said_are_found(contents, tmp_path):
    """A forger who changes reward, labels, diagnosis and evidence together still cannot change the simulators."""
    number = next(n for n, (k, v) in enumerate(contents) if k == "training" and v["score"] == 0 and not v["infra"])
    value = copy.deepcopy(contents[number][1])
    value |= {"score": 1.0, "stop": "completed", "turns_passed": value["turns"], "progress": 1.0}
    value["labels"] = ["pass"] * len(value["labels"])
    for turn, diagnosis in zip(value["evidence"], value["diagnosis"], strict=False):
        turn |= {"state_match": True, "response_match": True, "blame": None, "absent": []}
        diagnosis |= {"label": "pass", "signals": ["pass"], "rule": "verifier_met", "blame": None}
    found = forged([*contents[:number], ("training", value), *contents[number + 1 :]], tmp_path / "c.seal.gz")
    first = found.disagreements[0]
    assert (first.place.task, first.place.sample) == (value["task_id"], value["sample"])
    assert found.counts["rewards"].agree == found.counts["rewards"].of - 1


def test_the_place_of_a_label_names_step_task_sample_and_turn(contents, tmp_path):
    number = next(n for n, (k, v) in enumerate(contents) if k == "training" and len(v["labels"]) > 1)
    value = copy.deepcopy(contents[number][1])
    value["labels"][1] = "recovery_failure" if value["labels"][1] == "pass" else "pass"
    found = forged([*contents[:number], ("training", value), *contents[number + 1 :]], tmp_path / "c.seal.gz")
    text = str(found.disagreements[0])
    assert text.startswith(f"step {value['step']}, {value['task_id']}, sample {value['sample']}, turn 1, labels[1]: ")
    assert value["labels"][1] in text and len(found.disagreements) == 1


def test_a_published_digest_stands_for_the_content(certificate, contents, tmp_path):
    """Whoever makes the hashes fit again gets another digest."""
    digest = [record.sha256 for record in read(certificate)][-1]
    assert verify(certificate, f"sha256:{digest}", processes=0).holds
    number = next(n for n, (kind, _) in enumerate(contents) if kind == "training")
    value = contents[number][1] | {"seconds": 99.0}
    path = tmp_path / "c.seal.gz"
    assert forged([*contents[:number], ("training", value), *contents[number + 1 :]], path).holds
    assert "digest" in str(verify(path, digest, processes=0).disagreements[0])


# --- the commands ----------------------------------------------------------------------


def seal(*arguments: str, cwd=None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "seal.cli", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(HOME), "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=cwd)


def test_the_commands_write_and_check_a_certificate_without_an_engine(run, tmp_path):
    done = seal("certify", run, "--out", tmp_path / "c.seal.gz")
    digest = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and digest.startswith("sha256:")
    code = (
        "import sys; from seal.cli.main import main; "
        f"sys.argv = ['seal', 'verify', {str(tmp_path / 'c.seal.gz')!r}, '--processes', '2', '--digest', {digest!r}]\n"
        "code = main(); assert not {'torch', 'verl', 'ray', 'vllm'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=HOME)
    assert done.returncode == 0 and "Everything agrees." in done.stdout, done.stderr
    other = seal("verify", tmp_path / "c.seal.gz", "--digest", "0" * 64)
    assert other.returncode == 1 and "First disagreement: digest" in other.stdout


def test_files_that_are_no_certificate_are_refused_in_one_sentence(certificate, contents, tmp_path):
    cut, text, foreign, later = (tmp_path / name for name in ("cut", "text", "foreign", "later"))
    cut.write_bytes(certificate.read_bytes()[:-2000])
    text.write_text("hello")
    head = contents[0][1]
    write([("head", head | {"data_hash": "0" * 64}), *contents[1:]], foreign)
    write([("head", head | {"certificate": 99}), *contents[1:]], later)
    for path, word in ((cut, "damaged"), (text, "not a certificate"), (foreign, "bfcl-eval"), (later, "version 99")):
        with pytest.raises(ValueError, match=word):
            verify(path, processes=0)
    done = seal("verify", text)
    assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1


def test_a_run_that_lacks_what_a_replay_needs_is_refused_in_one_sentence(tmp_path):
    run = write_run(tmp_path / "run", *SMALL, steps=2, validations=(0,))
    path = run / "seal_log" / "trajectories" / "2.jsonl"
    lines = path.read_text()
    path.write_text(lines.replace('"format": 2', '"format": 1'))
    with pytest.raises(ValueError, match=r"2\.jsonl has trajectories of format 1, which lack"):
        list(records(run))
    path.unlink()
    with pytest.raises(ValueError, match="trajectories of step 2"):
        list(records(run))
    path.write_text(lines)
    path.with_name("3.jsonl").write_text(lines)
    list(records(run))  # a run that was killed in step 3
    path.with_name("4.jsonl").write_text(lines)
    with pytest.raises(ValueError, match=r"steps\.jsonl ends with step 2, and \S+ with step 4: .* Copy the whole run"):
        list(records(run))
    path.with_name("4.jsonl").unlink()
    validation = run / "validation_log" / "0.jsonl"
    validation.with_name("9.jsonl").write_text(validation.read_text())
    with pytest.raises(ValueError, match=r"steps\.jsonl ends with step 2, and \S+validation_log with step 9: "):
        list(records(run))
    validation.with_name("9.jsonl").unlink()
    log = run / "seal_log" / "launches.jsonl"
    launches = log.read_text()
    log.write_text(launches.replace('"step": 0', '"step": 5', 1))
    with pytest.raises(ValueError, match="another run's checkpoint of step 5"):
        list(records(run))
    log.unlink()
    with pytest.raises(ValueError, match="earlier version of SEAL"):
        list(records(run))


def test_a_run_that_a_verifier_would_replay_differently_is_refused(tmp_path):
    run = write_run(tmp_path / "run", *SMALL, steps=1, validations=())
    log = run / "seal_log" / "launches.jsonl"
    facts = json.loads(log.read_text())
    changed = OmegaConf.merge(facts["config"], {"seal": {"sampling": {"pilot": {"samples": 2}}}})
    log.write_text(json.dumps(facts | {"config": OmegaConf.to_container(changed)}) + "\n")
    with pytest.raises(ValueError, match=r"seal\.sampling\.pilot is on"):
        list(records(run))
