"""What a certificate says is computed again; whatever was changed in it is found, where it is."""

import copy
import gzip
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from env_service.environments.bfcl.task_file import write_task_file
from seal.launch.method import method_digest
from seal.records.trajectory import TrajectoryRecord
from seal.system.paths import HOME
from shelf.lab.certificate.collect import records
from shelf.lab.certificate.fields import LOST_HASHED, STEP_HASHED, TRAJECTORY_HASHED
from shelf.lab.certificate.figures import figures
from shelf.lab.certificate.file import LINE_BYTES, read, write
from shelf.lab.certificate.verify import verify
from shelf.lab.certificate.version import OWN
from shelf.statistics.suspected import load_suspected
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from tests.support.played_run import SMALL, mixture_of, write_run

ABLATIONS = sorted(path.stem for path in (HOME / "exp" / "ablation").glob("*.yaml"))
ONCE = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])

Keys = tuple[str | int, ...]


def test_an_honest_certificate_holds(certificate, url):
    found = verify(certificate, url=url)
    assert found.holds, found.disagreements[0]
    assert (found.steps, found.trajectories) == (2, 12 + 2 * found.validations // 2)
    assert found.counts["C_t"] == found.counts["rho"] == (2, 2)
    assert found.counts["weights"].of == found.counts["advantages"].of == 12
    for what in ("calls that exceeded a limit of the service", "trajectories lost to infrastructure"):
        assert found.taken[what]


def test_a_certificate_of_another_version_is_refused_with_the_commit_that_verifies_it(contents, url, tmp_path):
    head, path = contents[0][1], tmp_path / "other.seal.gz"
    unnamed = {name: value for name, value in head.items() if name not in ("commit", "method")}
    write([("head", unnamed | {"certificate": 1}), *contents[1:]], path)
    with pytest.raises(ValueError, match=r"made by commit dba7bcd, .*`git worktree add \.\./seal-dba7bcd dba7bcd`"):
        verify(path, url=url)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HOME, capture_output=True, text=True, check=False).stdout
    assert head["commit"] == commit.strip() and head["method"] == method_digest(*OWN)
    write([("head", head | {"method": "0" * 64, "commit": "c" * 40}), *contents[1:]], path)
    done = seal("verify", path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "`git worktree add ../seal-cccccccccccc cccccccccccc`" in done.stderr
    write([("head", head | {"commit": "c" * 40}), *contents[1:]], path)
    assert verify(path, url=url).holds, "another commit with the same method is the same version"


def test_the_same_run_gives_the_same_file(run, certificate, tmp_path):
    write(records(run), tmp_path / "again.seal.gz")
    assert (tmp_path / "again.seal.gz").read_bytes() == certificate.read_bytes()


def test_paths_of_the_checkout_say_nothing_of_the_machine(contents):
    launches = [value for kind, value in contents if kind == "launch"]
    assert launches and str(HOME) not in json.dumps(launches)
    assert launches[0]["config"]["actor_rollout_ref"]["model"]["path"] == "data/quickstart_policy"


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_every_ablation_holds(ablation, tmp_path, url):
    assert_holds(write_run(tmp_path / "run", *SMALL, f"ablation={ablation}", steps=3, validations=()), url)


@pytest.mark.parametrize(
    "overrides",
    [
        ("seal.diagnosis.source=permuted", "seal.diagnosis.blame=own"),
        ("seal.diagnosis.taxonomy=release", "seal.reward.mode=t3rl"),
        ("seal.reward.cut=exclude", "seal.reward.mode=capped", "seal.rollout.max_steps=5"),
        ("algorithm.norm_adv_by_std_in_grpo=false", "actor_rollout_ref.rollout.val_kwargs.n=2"),
        ("seal.interface.share=0.67",),
        ("seal.interface.evolve={kinds: [schema, feedback, guideline], min_count: 1}",),
        ("env_service.prompt_mode=bfcl_qwen_fc", "data.max_prompt_length=16384", "data.max_response_length=8192",
         "actor_rollout_ref.rollout.max_model_len=32768", "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=32768"),
    ],
)  # fmt: skip
def test_every_part_of_the_method_holds(overrides, tmp_path, url):
    assert_holds(write_run(tmp_path / "run", *SMALL, *overrides, steps=2, validations=(2,), lost=0.2, late=0.02), url)


TEACHER = ("seal.interface.share=0.5", "actor_rollout_ref.rollout.n=6", "seal.interface.teacher=retry")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A run with a teacher."""
    return write_run(tmp_path_factory.mktemp("taught") / "run", *SMALL, *TEACHER, steps=3, validations=(), seed=1)


def test_what_a_teacher_showed_and_taught_is_computed_again(taught, tmp_path, url):
    assert_holds(taught, url)
    contents = [list(each) for each in records(taught)]
    lines = [value for kind, value in contents if kind == "training"]
    assert 0 < sum(line["taught"] for line in lines) < sum(bool(line["cues"]) for line in lines)
    for line, field in zip((line for line in lines if line["taught"]), ("cues", "taught", "silent"), strict=False):
        was, line[field] = line[field], line[field][1:] if field == "cues" else not line[field]
        write(contents, tmp_path / "changed.seal.gz")
        found = verify(tmp_path / "changed.seal.gz", url=url).disagreements
        assert any((each.place.field or "").startswith(field) for each in found), field
        line[field] = was


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["retry", "share", "plain"])
@pytest.mark.parametrize(
    "more", ["seal.diagnosis.source=permuted", "seal.diagnosis.source=random", "seal.reward.cut=silent"]
)
def test_every_teacher_holds(teacher, more, tmp_path, url):
    asked = (*TEACHER, f"seal.interface.teacher={teacher}", more)
    assert_holds(write_run(tmp_path / "run", *SMALL, *asked, steps=3, validations=(), lost=0.1, seed=1), url)


def test_a_run_that_was_resumed_with_other_settings_holds(tmp_path, url):
    """As a resumed trainer does: C_t, rho and Omega go on, what the recipe fixes is the new recipe's."""
    resumed = {1: (), 2: ("seal.diagnosis.window=2", "seal.reweighting.alpha=0.5", "seal.interface.enabled=false")}
    run = write_run(tmp_path / "run", *SMALL, steps=4, validations=(0, 2, 4), resumed=resumed)
    assert_holds(run, url)
    launches = [json.loads(line) for line in (run / "seal_log" / "launches.jsonl").read_text().splitlines()]
    assert [launch["step"] for launch in launches] == [0, 1, 2]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run on the benchmark's and on synthesised tasks, which was resumed; their file lies beside it."""
    folder = tmp_path_factory.mktemp("mixed")
    write_task_file(synthesise(Grammar(), 12, 3, "train"), folder / "tasks.jsonl")
    overrides = (*SMALL, *mixture_of(folder / "tasks.jsonl"))
    return write_run(folder / "run", *overrides, steps=2, validations=(0, 2), resumed={1: ()})


def test_synthesised_tasks_are_verified_where_their_file_is_not(mixed, tmp_path, url):
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
        assert done.returncode == 0 and "Everything agrees." not in done.stdout, done.stdout + done.stderr
        assert "taken as written: 2 selections of validation tasks by files that are not here" in done.stdout
        with pytest.raises(ValueError, match=r"synth_\S+ cannot be certified without its task file: put .*tasks.jsonl"):
            list(records(mixed))
    finally:
        elsewhere.rename(file)
    assert verify(tmp_path / "c.seal.gz", url=url).counts["selections of tasks"] == (4, 4), "the file is here again"
    number = next(n for n, (kind, _) in enumerate(contents) if kind == "task")
    forgery = copy.deepcopy(contents)
    forgery[number][1]["reference"][0].append(forgery[number][1]["reference"][0][0])
    write(forgery, tmp_path / "forged.seal.gz")
    with pytest.raises(ValueError, match=r"synthesised task cannot be played: 'synth_.* is not the id of its content"):
        verify(tmp_path / "forged.seal.gz", url=url)
    forgery[number][1]["classes"] = ["Nothing"]
    write(forgery, tmp_path / "forged.seal.gz")
    with pytest.raises(ValueError, match=r"a synthesised task\S* cannot be played: .*classes has 'Nothing'") as error:
        verify(tmp_path / "forged.seal.gz", url=url)
    assert "seal_tasks" not in str(error.value)


def test_validation_tasks_that_were_left_out_are_found_by_the_file_that_selects_them(mixed, tmp_path, url):
    """With all hashes and figures made anew; if the file is another one, the selection is taken as written."""
    contents = list(records(mixed))
    launches = [value for kind, value in contents if kind == "launch"]
    _, dropped, _ = launches[0]["rows"]["validation"][0]
    after, kept = [], []
    for kind, value in copy.deepcopy(contents):
        if kind == "launch":
            value["rows"]["validation"] = [row for row in value["rows"]["validation"] if row[1] != dropped]
        if kind == "validation" and value["task_id"] == dropped:
            continue
        if kind == "validation":
            kept.append(TrajectoryRecord.from_line(value))
        if kind == "figures":
            value["summaries"], kept = figures(kept, load_suspected()), []
        if kind == "end":
            value["trajectories"] -= sum(k == "validation" and v["task_id"] == dropped for k, v in contents)
        after.append((kind, value))
    found = forged(after, tmp_path / "c.seal.gz", url)
    assert len(found.disagreements) == len(launches)
    assert all(each.place.field.startswith("rows.validation[0]") for each in found.disagreements)
    assert {task for _, task in found.validated} == {row[1] for row in after[1][1]["rows"]["validation"]}
    for kind, value in after:
        if kind == "launch":
            value["files"] = dict.fromkeys(value["files"], "0" * 64)
    found = forged(after, tmp_path / "c.seal.gz", url)
    assert found.holds and any("validation tasks by files" in what for what in found.taken)


def test_a_certificate_that_ends_early_or_lacks_a_validation_does_not_agree(contents, tmp_path, url):
    numbers = [n for n, (kind, value) in enumerate(contents) if value.get("step") == 2 and kind != "launch"]
    end = contents[-1][1]["trajectories"]
    for kinds, said in (
        ({"training", "step", "validation", "figures"}, "there are 1 steps and validations at 0"),
        ({"validation", "figures"}, "there are 2 steps and validations at 0"),
    ):
        left = [pair for n, pair in enumerate(contents[:-1]) if not (n in numbers and pair[0] in kinds)]
        gone = sum(contents[n][0] in kinds & {"training", "validation"} for n in numbers)
        found = forged([*left, ("end", {"trajectories": end - gone})], tmp_path / "c.seal.gz", url)
        (only,) = found.disagreements
        assert "asks for 2 steps and validations at 0, 2" in only.problem and said in only.problem


def test_only_a_whole_run_of_this_version_is_certified(run, tmp_path):
    copied = shutil.copytree(run, tmp_path / "small")
    log = copied / "seal_log" / "launches.jsonl"
    launches = log.read_text()
    log.write_text(launches.replace(method_digest(), "1" * 64))
    with pytest.raises(ValueError, match=r"was trained by commit 000000000000, .*worktree add .* certify it there"):
        list(records(copied))
    log.write_text(launches)
    (copied / "validation_log" / "2.jsonl").unlink()
    with pytest.raises(ValueError, match=r"not whole: .* validations at 0, 2, and there are 2 steps and .* at 0;"):
        list(records(copied))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "bomb.seal.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(6):
            file.write(b"0" * LINE_BYTES)
    tracemalloc.start()
    with pytest.raises(ValueError, match="not a certificate: line 1 is not a record"):
        list(read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * LINE_BYTES


def test_a_record_that_is_no_json_names_the_file_and_what_to_do(contents, tmp_path):
    path = tmp_path / "c.seal.gz"
    write(contents, path)
    original = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    original[1] = _line(original[1], b'{"launch":{"step":0 1}}')
    path.write_bytes(gzip.compress(b"".join(original)))
    with pytest.raises(ValueError, match=rf"{path}: record 1 is not JSON .*: copy it again"):
        verify(path)


def test_a_withdrawal_is_not_part_of_a_certificate(run, certificate, tmp_path):
    copied = shutil.copytree(run, tmp_path / "small")
    shutil.copytree(copied / "validation_log", copied / "seal_log" / "withdrawal")
    write(records(copied), tmp_path / "c.seal.gz")
    assert (tmp_path / "c.seal.gz").read_bytes() == certificate.read_bytes()


def test_groups_that_infrastructure_dropped_hold(tmp_path, url):
    run = write_run(tmp_path / "run", *SMALL, steps=2, validations=(), lost=0.9)
    steps = [json.loads(line) for line in (run / "seal_log" / "steps.jsonl").read_text().splitlines()]
    assert any(step["groups_dropped"] for step in steps)
    assert_holds(run, url)


def assert_holds(run, url) -> None:
    write(records(run), run / "c.seal.gz")
    found = verify(run / "c.seal.gz", url=url)
    assert found.holds, found.disagreements[0]


# --- changes ---------------------------------------------------------------------------


def leaves(value: Any, path: Keys = ()) -> Iterator[Keys]:
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


def with_change(contents, draw, wanted) -> tuple[list, int, Keys] | None:
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


def forged(contents, path, url) -> Any:
    """What a verification finds in records whose hashes were made to fit; None if it refuses the file."""
    write(contents, path)
    try:
        return verify(path, url=url)
    except ValueError:
        return None


def only_hashed(kind: str, value: Any, path: Keys) -> bool:
    """Whether the lab's page says that a forger may change this leaf."""
    if kind == "step":
        return path[0] == "steps" and path[1] in STEP_HASHED
    if kind == "figures":
        return path == ("launch",)
    said = path[0] == "output" and path[-1] == "content" and value["output"][path[1]]["role"] == "assistant"
    return said or path[0] in (LOST_HASHED if value.get("infra") else TRAJECTORY_HASHED)


@ONCE
@given(data=st.data())
def test_a_change_without_new_hashes_is_found_in_its_record(data, certificate, contents, tmp_path_factory, url):
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
        found = verify(path, url=url)
    except ValueError:
        return  # refused: another version, or other benchmark data
    assert not found.holds
    assert any(each.place.record == number and "hash" in each.problem for each in found.disagreements)


def _line(line: bytes, text: bytes) -> bytes:
    """The line with its hash and another record."""
    return line[: line.index(b'"record":')] + b'"record":' + text + b"}\n"


@ONCE
@given(data=st.data())
def test_a_forged_value_that_can_be_recomputed_is_found_where_it_is(data, contents, tmp_path_factory, url):
    change = with_change(contents, data.draw, {"training", "validation", "step", "figures", "end"})
    if change is None:
        return
    after, number, path = change
    note(f"{contents[number][0]} {number}, {path}")
    kind, value = contents[number]
    found = forged(after, tmp_path_factory.mktemp("forged") / "c.seal.gz", url)
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
def test_a_forger_cannot_remove_repeat_or_move_a_record(data, contents, tmp_path_factory, url):
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
    found = forged(after, tmp_path_factory.mktemp("moved") / "c.seal.gz", url)
    assert found is None or not found.holds


def test_labels_that_fit_each_other_but_not_what_was_said_are_found(contents, tmp_path, url):
    """A forger who changes reward, labels, diagnosis and evidence together still cannot change the simulators."""
    number = next(n for n, (k, v) in enumerate(contents) if k == "training" and v["score"] == 0 and not v["infra"])
    value = copy.deepcopy(contents[number][1])
    value |= {"score": 1.0, "stop": "completed", "turns_passed": value["turns"], "progress": 1.0}
    value["labels"] = ["pass"] * len(value["labels"])
    for turn, diagnosis in zip(value["evidence"], value["diagnosis"], strict=False):
        turn |= {"state_match": True, "response_match": True, "blame": None, "absent": []}
        diagnosis |= {"label": "pass", "signals": ["pass"], "rule": "verifier_met", "blame": None}
    found = forged([*contents[:number], ("training", value), *contents[number + 1 :]], tmp_path / "c.seal.gz", url)
    first = found.disagreements[0]
    assert (first.place.task, first.place.sample) == (value["task_id"], value["sample"])
    assert found.counts["rewards"].agree == found.counts["rewards"].of - 1


@pytest.mark.parametrize("key", ["actions", "calls", "available", "error"])
def test_evidence_that_lacks_a_key_is_a_finding(key, contents, tmp_path, url):
    changed = copy.deepcopy(contents)
    value = next(value for kind, value in changed if kind == "training" and value["calls"])
    turn = next(turn for turn in value["evidence"] if any(action["calls"] for action in turn["actions"]))
    action = next(action for action in turn["actions"] if action["calls"])
    del {"actions": turn, "calls": action}.get(key, action["calls"][0])[key]
    found = forged(changed, tmp_path / "c.seal.gz", url)
    assert not found.holds
    assert "cannot be read" in found.disagreements[0].problem


def test_a_validation_has_no_trajectory_of_a_withdrawal(contents, tmp_path, url):
    changed = copy.deepcopy(contents)
    next(value for kind, value in changed if kind == "validation")["withdrawn"] = "x"
    found = forged(changed, tmp_path / "c.seal.gz", url)
    assert [each.place.field for each in found.disagreements[:1]] == ["withdrawn"]


def test_the_place_of_a_label_names_step_task_sample_and_turn(contents, tmp_path, url):
    number = next(n for n, (k, v) in enumerate(contents) if k == "training" and len(v["labels"]) > 1)
    value = copy.deepcopy(contents[number][1])
    value["labels"][1] = "recovery_failure" if value["labels"][1] == "pass" else "pass"
    found = forged([*contents[:number], ("training", value), *contents[number + 1 :]], tmp_path / "c.seal.gz", url)
    text = str(found.disagreements[0])
    assert text.startswith(f"step {value['step']}, {value['task_id']}, sample {value['sample']}, turn 1, labels[1]: ")
    assert value["labels"][1] in text and len(found.disagreements) == 1


def test_a_published_digest_stands_for_the_content(certificate, contents, tmp_path, url):
    """Whoever makes the hashes fit again gets another digest."""
    digest = [record.sha256 for record in read(certificate)][-1]
    assert verify(certificate, f"sha256:{digest}", url=url).holds
    number = next(n for n, (kind, _) in enumerate(contents) if kind == "training")
    value = contents[number][1] | {"seconds": 99.0}
    path = tmp_path / "c.seal.gz"
    assert forged([*contents[:number], ("training", value), *contents[number + 1 :]], path, url).holds
    assert "digest" in str(verify(path, digest, url=url).disagreements[0])


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
    assert done.returncode == 0 and "taken as written: 2 trajectories lost" in done.stdout, done.stderr
    assert "Everything agrees." not in done.stdout, "some values are taken as written"
    other = seal("verify", tmp_path / "c.seal.gz", "--digest", "0" * 64)
    assert other.returncode == 1 and "First disagreement: digest" in other.stdout


def test_files_that_are_no_certificate_are_refused_in_one_sentence(certificate, contents, tmp_path, url):
    cut, text, foreign, later = (tmp_path / name for name in ("cut", "text", "foreign", "later"))
    cut.write_bytes(certificate.read_bytes()[:-2000])
    text.write_text("hello")
    head = contents[0][1]
    write([("head", head | {"data_hash": "0" * 64}), *contents[1:]], foreign)
    write([("head", head | {"certificate": 99}), *contents[1:]], later)
    for path, word in ((cut, "damaged"), (text, "not a certificate"), (foreign, "bfcl-eval"), (later, "version 99")):
        with pytest.raises(ValueError, match=word):
            verify(path, url=url)
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
