"""Evaluating an endpoint over HTTP: verdicts, faults, interruption, and the official tool on the same outputs."""

import asyncio
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import psutil
import pytest

from env_service.environments.registry import get_environment, register
from env_service.local_service import LocalService
from seal.cli.main import execute, load
from seal.data.rows import TaskRow
from seal.records.benchmark import parse_task_id
from seal.settings.user import UserSettings
from seal.system.net import free_port
from seal.system.paths import HOME
from shelf.statistics.log import read_log
from shelf.statistics.summary import summarise
from shelf.suites import OFFICIAL_MODEL, OFFICIAL_TOOL_CALLS
from shelf.suites.benchmark import Evaluation, _check_settings
from shelf.suites.bfcl.export import result_file
from shelf.suites.bfcl_v4.run import environment as bfcl_environment
from shelf.suites.cli.evaluate import app
from shelf.suites.cli.evaluate import named_harness as harness
from shelf.suites.endpoint import EvaluatedModel
from shelf.suites.journal import hold, require_same_settings
from shelf.suites.tool import ROOT
from tests.support.launches import service_process
from tests.support.rollout_play import running_service
from tests.support.user_server import user_server

HERE = Path(__file__).parent
REPOSITORY = HOME
PROGRAM = [sys.executable, "-m", "seal.cli", "evaluate"]


def main(arguments):
    """Run `seal evaluate` in this process; its exit code."""
    return app(arguments, standalone_mode=False) or 0


def command(endpoint, service, out, *more):
    where = ["--base-url", f"{endpoint}/v1", "--model", "scripted", "--env-url", service, "--out", str(out)]
    return ["bfcl", *where, *more]


def lines_of(out):
    return [json.loads(line) for line in (out / "validation_log" / "0.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def evaluated(endpoint, service_url, tmp_path_factory):
    """An evaluation of ten tasks of each category."""
    out = tmp_path_factory.mktemp("evaluated")
    assert main(command(endpoint, service_url, out, "--limit", "10")) == 0
    return out


def test_every_task_has_a_line_in_order_and_the_expected_verdict(evaluated, fault_of):
    lines = lines_of(evaluated)
    assert len(lines) == 40
    assert [line["data_source"] for line in lines[::10]] == ["base", "miss_func", "miss_param", "long_context"]
    sure = {"none": 1.0, "wrong_tool": 0.0, "context": 0.0}
    judged = [(line["score"], sure[fault]) for line in lines if (fault := fault_of(_scenario(line))) in sure]
    assert len(judged) > 10
    assert all(score == expected for score, expected in judged)
    assert not read_log(evaluated / "validation_log" / "0.jsonl").bad


def _scenario(line):
    return parse_task_id(line["task_id"])[1]


def test_lines_say_what_statistics_and_diagnosis_need(evaluated, fault_of):
    for line in lines_of(evaluated):
        assert len(line["evidence"]) == line["turns"]
        assert line["infra"] is None and line["data_hash"] and line["split"] == "eval"
        assert line["input"][0]["role"] == "system" and line["output"][0]["role"] == "assistant"
        fault = fault_of(_scenario(line))
        if fault == "context":
            assert "length" in {turn["stop"] for turn in line["evidence"]}
        if fault == "cut":  # as officially, a cut message is read as far as it goes
            assert any(action["truncated"] for turn in line["evidence"] for action in turn["actions"])
            assert "length" not in {turn["stop"] for turn in line["evidence"]}


def test_lines_say_how_long_a_rollout_was_and_when_it_ran(evaluated):
    lines = read_log(evaluated / "validation_log" / "0.jsonl").lines
    assert all(line.day and line.seconds > 0 for line in lines)
    assert all(line.prompted >= sum(len(message["content"]) // 4 for message in line.messages[:2]) for line in lines)


def test_stored_rollouts_are_judged_again_as_they_were(evaluated, capsys):
    assert execute(load("rescore"), [str(evaluated), "--processes", "1"], "seal rescore") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "40 of 40 rollouts judged again" in out and "Every verdict, label and reward is the same." in out


def test_the_same_command_again_plays_nothing(evaluated, endpoint, service_url, capsys):
    before = (evaluated / "validation_log" / "0.jsonl").read_bytes()
    assert main(command(endpoint, service_url, evaluated, "--limit", "10")) == 0
    assert "0 rollouts played, 40 kept" in capsys.readouterr().out
    assert (evaluated / "validation_log" / "0.jsonl").read_bytes() == before


def test_other_settings_do_not_mix_into_a_folder(evaluated, endpoint, service_url, capsys):
    assert main(command(endpoint, service_url, evaluated, "--limit", "10", "--max-tokens", "7")) == 2
    assert "another max_tokens" in capsys.readouterr().err


def test_other_weights_in_the_same_folder_are_another_evaluation(tmp_path):
    config, weights = tmp_path / "model" / "config.json", tmp_path / "model" / "model.safetensors"
    config.parent.mkdir()
    config.write_text("{}")
    weights.write_bytes(b"of step 10")
    model = EvaluatedModel.named(None, None, config.parent, "")
    evaluation = Evaluation([TaskRow("a", "shop/x", 0, "eval")], model, tmp_path / "out", "")
    for _ in range(2):
        require_same_settings(evaluation.out, evaluation.recorded({}, {}))
    weights.write_bytes(b"of step 20")  # exported again
    with pytest.raises(ValueError, match="another weights"):
        require_same_settings(evaluation.out, evaluation.recorded({}, {}))
    weights.write_bytes(b"of step 10")
    other = replace(evaluation, model=replace(model, serve_args="--tool-call-parser qwen3_xml"))
    with pytest.raises(ValueError, match="another serve_args"):  # what was played reads calls with another parser
        require_same_settings(evaluation.out, other.recorded({}, {}))


def test_a_field_of_each_request_hides_no_setting_of_the_evaluation(tmp_path):
    rows, model = [TaskRow("a", "shop/x", 0, "eval")], EvaluatedModel("m", "http://127.0.0.1:2")
    user = UserSettings(base_url="http://127.0.0.1:1", model="crowd")
    played = Evaluation(rows, model, tmp_path, "", user=user)
    alone, fields = replace(played, user=UserSettings()), {"user": "me", "samples": 7, "replaced": {}, "top_k": -1}
    require_same_settings(tmp_path, played.recorded({}, fields))
    for other, sent, named in ((alone, fields, "user"), (played, fields | {"samples": 8}, "extra.samples")):
        with pytest.raises(ValueError, match=f"another {named}"):
            require_same_settings(tmp_path, other.recorded({}, sent))
    assert "user" not in alone.recorded({}, fields) and played.recorded({}, fields)["top_k"] == -1


def test_killed_midway_it_loses_and_repeats_nothing(service_url, start_endpoint, tmp_path):
    out = tmp_path / "out"
    with start_endpoint("--delay", "0.05") as endpoint:
        arguments = command(endpoint, service_url, out, "--limit", "3", "--concurrency", "2")
        running = subprocess.Popen([*PROGRAM, *arguments], cwd=REPOSITORY)
        journal = out / "journal.jsonl"
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") >= 3):
            time.sleep(0.02)
        running.send_signal(signal.SIGKILL)
        running.wait(10)
        finished = {(line["task_id"]) for line in map(json.loads, journal.read_text().splitlines()[:-1])}
        with journal.open("a") as stream:
            stream.write('{"task_id": "multi_turn_base_1", "half')
        assert 0 < len(finished) < 12
        assert main(arguments) == 0
        served = json.load(urllib.request.urlopen(f"{endpoint}/served", timeout=5))["by_task"]
    lines = lines_of(out)
    assert len(lines) == len({line["task_id"] for line in lines}) == 12
    assert all(served[f"{task}/0"] == 1 for task in finished)


@pytest.mark.parametrize("restarted_by", [pytest.param("hand", marks=pytest.mark.slow), "the evaluation"])
def test_a_service_killed_midway_costs_nothing(evaluated, start_endpoint, tmp_path, restarted_by):
    port, out = free_port(), tmp_path / "out"
    url, journal = f"http://127.0.0.1:{port}", tmp_path / "out" / "journal.jsonl"
    with ExitStack() as stack:
        endpoint = stack.enter_context(start_endpoint("--delay", "0.05"))
        if restarted_by == "hand":
            service = LocalService(tmp_path / "service.log", port, BFCL_OWNER="")
            stack.callback(service.stop)
            service.start()
        arguments = command(endpoint, url, out, "--limit", "10", "--concurrency", "8")
        running = stack.enter_context(subprocess.Popen([*PROGRAM, *arguments], cwd=REPOSITORY))
        stack.callback(running.kill)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (journal.exists() and journal.read_bytes().count(b"\n") >= 4):
            time.sleep(0.02)
        assert running.poll() is None
        starter = os.getpid() if restarted_by == "hand" else running.pid
        kill_tree(service_process(starter, int(url.rpartition(":")[2])))
        if restarted_by == "hand":
            service.stop()
            service.start()
        assert running.wait(180) == 0
    lines = lines_of(out)
    assert {line["infra"] for line in lines} == {None}
    assert any(line["rebuilt"] for line in lines)
    assert [story(line) for line in lines] == [story(line) for line in lines_of(evaluated)]


def kill_tree(process):
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            each.kill()


def story(line):
    """A line without what differs between two runs of the same rollout."""
    return {key: value for key, value in line.items() if key not in ("seconds", "times", "rebuilt")}


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume(service_url, start_endpoint, tmp_path):
    with start_endpoint("--delay", "3") as endpoint:
        arguments = command(endpoint, service_url, tmp_path / "out", "--limit", "4")
        running = subprocess.Popen([*PROGRAM, *arguments], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not json.load(urllib.request.urlopen(f"{endpoint}/served"))["requests"]:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "the same command resumes" in said


def test_sigterm_while_a_model_starts_leaves_no_server(service_url, tmp_path):
    policy = str(REPOSITORY / "data" / "quickstart_policy")
    arguments = ["bfcl", "--checkpoint", policy, "--env-url", service_url, "--out", str(tmp_path / "out")]
    running = subprocess.Popen([*PROGRAM, *arguments], cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    servers, deadline = [], time.monotonic() + 60
    while not servers and time.monotonic() < deadline:
        servers = psutil.Process(running.pid).children(recursive=True)
        time.sleep(0.05)
    time.sleep(1)
    running.terminate()
    assert running.wait(timeout=60) == 143
    assert servers and not any(server.is_running() for server in servers)


def test_an_overloaded_endpoint_is_asked_again(service_url, start_endpoint, tmp_path):
    with start_endpoint("--flaky", "5") as endpoint:
        assert main(command(endpoint, service_url, tmp_path / "out", "--limit", "1")) == 0
    assert all(line["infra"] is None for line in lines_of(tmp_path / "out"))


def test_a_lost_endpoint_leaves_lines_with_the_cause_that_are_played_again(
    service_url, start_endpoint, tmp_path, capsys
):
    out = tmp_path / "out"
    with start_endpoint("--flaky", "1") as endpoint:
        arguments = command(endpoint, service_url, out, "--limit", "1", "--wait", "0")
        assert main(arguments) == 1
    assert {line["infra"] for line in lines_of(out)} == {"endpoint_503"}
    assert "4 rollouts failed" in capsys.readouterr().out
    with start_endpoint() as endpoint:
        assert main(command(endpoint, service_url, out, "--limit", "1")) == 0
    assert {line["infra"] for line in lines_of(out)} == {None}


def test_an_odd_answer_is_of_its_rollout_alone_and_says_why(service_url, start_endpoint, tmp_path, capsys):
    out, tasks = tmp_path / "out", tmp_path / "tasks.txt"
    tasks.write_text("".join(f"multi_turn_base_{scenario}\n" for scenario in range(7)))
    with start_endpoint("--odd", "--refuses", "seed", "temperature") as endpoint:
        more = ["--split", "all", "--task-file", str(tasks), "--concurrency", "1"]
        assert main(command(endpoint, service_url, out, *more)) == 1
        said = capsys.readouterr().out
        assert main(command(endpoint, service_url, out, *more)) == 1  # the faults alone are played again
        assert "0 rollouts played, 4 kept" in capsys.readouterr().out
    lines = {_scenario(line): line for line in lines_of(out)}
    causes = [lines[number]["infra"] for number in range(7)]
    assert causes == [None, "endpoint_reasoning", "endpoint_error", None, None, None, "endpoint_422"]
    assert lines[0]["score"] == 1.0 and lines[0]["stop"] == "completed"
    assert [lines[number]["stop"] for number in (3, 4)] == ["refusal", "refusal"]
    assert "I cannot help with that" in lines[3]["infra_message"]
    assert lines[5]["labels"][-1] == "budget_cut" and not any(lines[number]["score"] for number in (3, 4, 5))
    assert "exceeds the available context size" in lines[5]["infra_message"]
    for sentence in (
        "2 rollouts ended with a refusal",
        "1 rollouts exceeded the endpoint's context",
        "without a reasoning parser",
        "does not take temperature",
    ):
        assert sentence in said
    assert json.loads((out / "settings.json").read_text())["replaced"] == dict.fromkeys(
        ("seed", "temperature"), "left out"
    )


def test_another_environment_is_evaluated_with_the_same_options(service_url, start_endpoint, tmp_path, capsys):
    pytest.importorskip("tau2")
    out = tmp_path / "out"
    with start_endpoint("--environment", "tau2_telecom", "--prompt-mode", "hermes") as endpoint:
        _, *options = command(endpoint, service_url, out, "--limit", "1", "--samples", "2")
        assert main(["tau2_telecom", *options]) == 0
        count = len(lines_of(out))
        assert main(["tau2_telecom", *options]) == 0
        assert f"0 rollouts played, {count} kept" in capsys.readouterr().out
        assert main(["tau2_telecom", *options, "--categories", "base"]) == 2
    assert all(line["score"] == 1.0 and line["category"].startswith("tau2_telecom/") for line in lines_of(out))
    assert {row.samples for row in summarise(read_log(out / "validation_log" / "0.jsonl"))} == {2}
    groups = (get_environment("tau2_telecom").task(line["task_id"]).group for line in lines_of(out))
    assert [line["cluster"] for line in lines_of(out)] == [crc32(group.encode()) for group in groups]


def test_a_user_is_played_by_a_model_and_its_faults_are_played_again(start_endpoint, tmp_path, capsys, monkeypatch):
    location = "tests.support.errands:Errands"
    register("errands", location)
    monkeypatch.setattr("seal.rollout.user.PAUSE_S", 0.0)
    out, down = tmp_path / "out", [True]

    def wishes(body):
        said = sum(message["role"] == "assistant" for message in body["messages"])
        return (503, {}) if down[0] else ["I want soap.", "Figs.", "###STOP###"][said]

    with (
        start_endpoint("--environment", f"errands={location}", "--prompt-mode", "hermes") as endpoint,
        running_service(BFCL_ENVIRONMENTS=f"errands={location}") as service,
        user_server(wishes) as (user, asked),
    ):
        _, *options = command(endpoint, service.url, out, "--samples", "2", "--user-base-url", user)
        assert main(["errands", *options]) == 2  # no model is named
        options += ["--user-model", "crowd"]
        assert main(["errands", *options]) == 1
        assert [line["infra"] for line in lines_of(out)] == ["user", "user"]
        down[0] = False
        assert main(["errands", *options]) == 0
        assert main(["errands", *options, "--user-temperature", "1"]) == 2  # another user is another evaluation
        elsewhere = [*options[: options.index("--out")], "--out", str(tmp_path / "bfcl"), *options[-6:], "--limit", "1"]
        assert main(["bfcl", *elsewhere]) == 2  # none of its users is for a model
    assert "pass^2 %" in capsys.readouterr().out
    assert all(line["score"] == 1.0 and len(line["user"]) == 3 for line in lines_of(out))
    assert len({body["seed"] for body in asked if len(body["messages"]) == 2}) == 2  # each sample has its own


@pytest.mark.parametrize("with_user", ["c", "none"])
def test_a_model_may_play_the_users_of_some_tasks(with_user, monkeypatch):
    class Probe:
        def __init__(self, _services, task_id, _params):
            self._part = {"messages": []} if task_id == with_user else None

        async def create(self):
            opened.append(self)
            return [], {}, self._part

        async def release(self):
            pass

    monkeypatch.setattr("shelf.suites.benchmark.Episode", Probe)
    opened, rows = [], [TaskRow(name, "shop/x", 0, "eval") for name in "abcd"]
    user = UserSettings(base_url="http://127.0.0.1:1", model="m")
    evaluation = Evaluation(rows, EvaluatedModel("m", "http://127.0.0.1:2"), Path("out"), "", user=user)
    with nullcontext() if with_user == "c" else pytest.raises(ValueError, match="No user of shop"):
        asyncio.run(_check_settings(None, evaluation))
    assert len(opened) == (3 if with_user == "c" else 4)


def test_an_environment_among_the_files_and_a_file_for_an_environment_are_told(endpoint, service_url, tmp_path, capsys):
    _, *options = command(endpoint, service_url, tmp_path / "out", "--tasks", "tau2_telecom")
    for name in ("bfcl", "tau2_telecom"):
        assert main([name, *options]) == 2
        assert "play tau2_telecom with `seal evaluate tau2_telecom`" in capsys.readouterr().err
    assert execute(load("evaluate"), ["nowhere", *options], "seal evaluate") == 2


@pytest.mark.parametrize("kept", ["validation_log/0.jsonl", "seal_log/launches.jsonl"])
def test_an_evaluation_replaces_nothing_of_a_run(endpoint, service_url, tmp_path, capsys, kept):
    file = tmp_path / kept
    file.parent.mkdir()
    file.write_text("{}\n")
    assert main(command(endpoint, service_url, tmp_path, "--limit", "1")) == 2
    assert "give another --out" in capsys.readouterr().err
    assert file.read_text() == "{}\n" and not (tmp_path / "settings.json").exists()


def test_two_evaluations_into_one_folder_are_one_too_many(endpoint, service_url, tmp_path, capsys):
    out = tmp_path / "out"
    with hold(out):
        assert main(command(endpoint, service_url, out, "--limit", "1")) == 2
        with pytest.raises(ValueError, match="plays into"), hold(out):
            pass
    assert f"(process {os.getpid()} since" in capsys.readouterr().err
    assert not (out / "journal.jsonl").exists()


def test_a_taken_address_of_the_service_costs_one_line(endpoint, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        limits = ("--categories", "base", "--limit", "1")
        program = [*PROGRAM, *command(endpoint, url, tmp_path / "out", *limits)]
        done = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if url in line and "starts at http://127.0.0.1:" in line]


def test_samples_and_prefixes(endpoint, service_url, tmp_path):
    out = tmp_path / "out"
    more = ("--categories", "base", "--limit", "3", "--samples", "2", "--prefix-turns", "1")
    assert main(command(endpoint, service_url, out, *more)) == 0
    rows = summarise(read_log(out / "validation_log" / "0.jsonl"))
    assert (rows[0].name, rows[0].tasks, rows[0].samples) == ("base@1", 3, 2)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model", "other"], "The endpoint serves scripted, not other"),
        (["--prompt-mode", "nonsense"], "nonsense"),
        (["--samples", "0"], "at least 1"),
        (["--task-file", "nowhere.txt"], "does not exist"),
        (["--checkpoint", "nowhere"], "either --base-url"),
        (["--extra", "top_k: 3"], "is no JSON object"),
        (["--extra", '{"top_k": 3}'], "generation_config.json would decide"),  # the endpoint sees the field
    ],
)
def test_wrong_settings_are_one_sentence(endpoint, service_url, tmp_path, capsys, more, said):
    assert main(command(endpoint, service_url, tmp_path / "out", "--limit", "1", *more)) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


HARNESS = ("--harness", "tests.support.harnesses:native")


@pytest.mark.parametrize(
    "more",
    [
        *([*HARNESS, option, "1"] for option in ("--temperature", "--top-p", "--max-tokens", "--seed", "--wait")),
        [*HARNESS, "--extra", "{}"],
        [*HARNESS, "--prompt-mode", "openai_fc"],
        ["--prompt-mode", "native"],
        *(
            ["--extra", json.dumps({name: 1})]
            for name in ("messages", "model", "tools", "max_tokens", "seed", "stream")
        ),
        ["--harness", "python 'agent.py"],
        ["--harness", ""],
    ],
    ids=str,
)
def test_what_would_not_do_what_it_says_is_refused_before_anything_is_written(
    endpoint, service_url, tmp_path, capsys, more
):
    assert main(command(endpoint, service_url, tmp_path / "out", "--limit", "1", *more)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["agent", "an agent"])
def test_a_harness_is_a_program_a_command_in_quotes_or_a_function(name, tmp_path):
    program = tmp_path / name
    program.touch(mode=0o755)
    quoted = shlex.quote(str(program))
    assert harness(str(program)) == harness(quoted) == [str(program)]
    for _ in range(2):  # the second time the same command resumes
        require_same_settings(tmp_path / "out", {"harness": harness(str(program))})
    assert harness(f"{quoted} --name 'two words'") == [str(program), "--name", "two words"]
    assert harness("agents.support:run") == harness("'agents.support:run'") == "agents.support:run"


def test_an_empty_address_is_none(capsys):
    assert execute(load("evaluate"), ["bfcl", "--base-url", "", "--model", "m", "--limit", "1"], "seal evaluate") == 2
    assert "Give either --base-url" in capsys.readouterr().err


def test_an_unknown_side_is_refused_with_the_choices(capsys):
    assert execute(load("evaluate"), ["bfcl", "--split", "foo"], "seal evaluate") == 2
    assert "'--split': 'foo' is not one of 'eval', 'train', 'all'" in capsys.readouterr().err


def test_nothing_listening_is_one_sentence_before_anything_starts(tmp_path, capsys):
    nothing = f"http://127.0.0.1:{free_port()}"
    assert main(command(nothing, nothing, tmp_path / "out", "--limit", "1")) == 2
    assert "No OpenAI-compatible endpoint answers" in capsys.readouterr().err and not [*tmp_path.iterdir()]


def test_a_folder_without_a_checkpoint_is_one_sentence(service_url, tmp_path, capsys):
    arguments = ["bfcl", "--checkpoint", str(tmp_path), "--env-url", service_url, "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "is not an HF checkpoint" in capsys.readouterr().err
    (tmp_path / "config.json").write_text("{}")
    assert main(arguments) == 2
    assert "holds no weights" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["global_step_8", "global_step_8/actor", "global_step_8/actor/huggingface"])
def test_a_training_checkpoint_is_told_how_to_become_a_model(service_url, tmp_path, capsys, named):
    actor = tmp_path / "global_step_8" / "actor"
    (actor / "huggingface").mkdir(parents=True)
    (actor / "huggingface" / "config.json").write_text("{}")
    (actor / "model_world_size_1_rank_0.pt").touch()
    where = ["--env-url", service_url, "--out", str(tmp_path / "out")]
    assert main(["bfcl", "--checkpoint", str(tmp_path / named), *where]) == 2
    assert "write it as a model with `seal export RUN --out DIR`, and name DIR" in capsys.readouterr().err


@pytest.mark.slow
def test_a_checkpoint_is_served_and_evaluated(service_url, tmp_path):
    serve = "--max-model-len 2048 --kv-cache-memory-bytes 268435456 --max-num-seqs 16"
    out = tmp_path / "out"
    model = ["--checkpoint", str(REPOSITORY / "data" / "quickstart_policy"), "--serve-args", serve]
    tasks = ["--categories", "base", "--prefix-turns", "1", "--limit", "4", "--prompt-mode", "compact"]
    where = ["--env-url", service_url, "--out", str(out), "--max-tokens", "96"]
    assert main(["bfcl", *model, *tasks, *where]) == 0
    lines = lines_of(out)
    assert len(lines) == 4
    assert all(line["infra"] is None and line["labels"] and line["tokens"] for line in lines)


def test_logs_of_other_prompt_modes_export_what_was_called(service_url, start_endpoint, tmp_path):
    out = tmp_path / "out"
    with start_endpoint("--prompt-mode", "compact") as endpoint:
        assert main(command(endpoint, service_url, out, "--limit", "2", "--prompt-mode", "compact")) == 0
    assert main(["export-bfcl", str(out), "--out", str(tmp_path / "official")]) == 0
    folder = tmp_path / "official" / "result" / OFFICIAL_MODEL.replace("/", "_") / "multi_turn"
    entry = json.loads((folder / result_file("base")).read_text().splitlines()[0])
    assert entry["result"][0][0].startswith('<tool_call>\n{"name": "')


def test_a_model_that_calls_tools_through_its_endpoint_is_scored_and_exported(
    service_url, start_endpoint, tmp_path, fault_of, capsys
):
    out, mode = tmp_path / "out", ("--prompt-mode", "openai_fc")
    with start_endpoint(*mode) as endpoint:
        assert main(command(endpoint, service_url, out, "--limit", "3", *mode)) == 0
        plain = command(endpoint, service_url, tmp_path / "text", "--limit", "1")
        assert main(plain) == 2
    sure = {"none": 1.0, "wrong_tool": 0.0, "context": 0.0}
    judged = [(line["score"], sure[fault]) for line in lines_of(out) if (fault := fault_of(_scenario(line))) in sure]
    assert judged and all(score == expected for score, expected in judged)
    assert main(["export-bfcl", str(out), "--out", str(tmp_path / "official")]) == 0
    assert f"bfcl evaluate --model {OFFICIAL_TOOL_CALLS}" in capsys.readouterr().out
    folder = tmp_path / "official" / "result" / OFFICIAL_TOOL_CALLS.replace("/", "_") / "multi_turn"
    entry = json.loads((folder / result_file("base")).read_text().splitlines()[0])
    (call,) = entry["result"][0][0]
    assert isinstance(json.loads(*call.values()), dict) and entry["result"][0][-1] == "Done."


def test_logs_that_cannot_be_exported_are_named(tmp_path, capsys):
    (tmp_path / "validation_log").mkdir()
    log = tmp_path / "validation_log" / "0.jsonl"
    log.write_text(json.dumps({"task_id": "multi_turn_base_1", "score": 1.0}) + "\n")
    assert main(["export-bfcl", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert "0.jsonl:1: has no evidence" in capsys.readouterr().err
    assert main(["export-bfcl", str(tmp_path), "--step", "3", "--out", str(tmp_path / "o")]) == 2
    assert "3.jsonl does not exist" in capsys.readouterr().err
    shop = {"category": "shop/x", "data_source": "shop/x", "task_id": "t", "score": 1.0}  # it keeps no evidence
    log.write_text(json.dumps(shop) + "\n")
    assert main(["export-bfcl", str(tmp_path), "--out", str(tmp_path / "o")]) == 2
    assert "left out: 1 rollouts of synthesised tasks or of another environment" in capsys.readouterr().err


@pytest.fixture(scope="module")
def official_tool():
    """The official command-line tool in an environment of its own, made once."""
    environment = bfcl_environment(["memory_kv"], Path(os.environ.get(ROOT) or REPOSITORY / "build" / "suites"))
    environment.install(print)
    return environment.program("bfcl")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "model"), [("bfcl_qwen_fc", OFFICIAL_MODEL), ("openai_fc", OFFICIAL_TOOL_CALLS)])
def test_the_official_tool_agrees_on_all_800_tasks(start_endpoint, service_url, official_tool, tmp_path, mode, model):
    out, root = tmp_path / "out", tmp_path / "official"
    with start_endpoint("--prompt-mode", mode) as endpoint:
        assert main(command(endpoint, service_url, out, "--split", "all", "--prompt-mode", mode)) == 0
    assert main(["export-bfcl", str(out), "--out", str(root)]) == 0
    arguments = ["evaluate", "--model", model, "--test-category", "multi_turn"]
    environment = {**os.environ, "BFCL_PROJECT_ROOT": str(root), "OPENAI_API_KEY": "none"}
    subprocess.run([official_tool, *arguments], env=environment, check=True, timeout=300)
    lines = lines_of(out)
    assert len(lines) == 800
    for category in ("base", "miss_func", "miss_param", "long_context"):
        ours = {line["task_id"] for line in lines if line["category"] == category and not line["score"]}
        (score,) = root.glob(f"score/**/*multi_turn_{category}_score.json")
        head, *failures = [json.loads(text) for text in score.read_text().splitlines()]
        assert head["total_count"] == 200 and head["correct_count"] == 200 - len(ours)
        assert {failure["id"] for failure in failures} == ours
