"""The environment service fails during a rollout: what a user sees, and what happens to the trajectory."""

import asyncio
import json
import logging
import threading
from http.server import BaseHTTPRequestHandler

import pytest
import requests

from env_service.environments.bfcl.catalog import load_tasks
from seal.rollout import episode
from seal.training.closed_loop import mark_groups
from seal.training.stop import InfrastructureFailure, check_infrastructure
from tests.support.loopback import Loopback
from tests.support.rollout_play import (
    ScriptedEngine,
    ServiceProcess,
    TokenOutput,
    outcome,
    reference_texts,
    roll_out,
    running_service,
)

MIDDLE = 5
"""The message before which the fault happens: the first of the second turn."""
HASTY = ("env_service.timeout_s=5", "env_service.attempts=2", "env_service.restart_wait_s=2", "seal.rollout.attempts=1")


@pytest.fixture(scope="module")
def service():
    with running_service() as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(service):
    ((output, record),) = roll_out([service.url], ScriptedEngine(reference_texts()))
    assert record.score == 1.0 and record.infra is None
    return outcome((output, record))


@pytest.fixture
def own_service():
    """A service that a test may kill."""
    running = ServiceProcess()
    running.start()
    yield running
    running.stop()


def once(act, at: int = MIDDLE):
    """Do something the first time that message `at` is asked for, whoever asks."""
    done = []

    async def before(number: int):
        if number == at and not done:
            done.append(number)
            await asyncio.to_thread(act)

    return before


class Fault:
    """A proxy before the real service that passes requests on until it is told what else to do.

    spoil: called with the verb and the number of the request from now on; gives (status, body, seconds
    to wait first), or None to pass the request on.
    """

    def __init__(self, url: str):
        proxy = self
        self.spoil = None
        self.seen: list[tuple[str, dict]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self._send(200, requests.get(url + self.path, timeout=10).content)

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                verb = self.path.strip("/")
                proxy.seen.append((verb, json.loads(body)))
                spoilt = proxy.spoil and proxy.spoil(verb, len(proxy.seen))
                if spoilt is None:
                    answer = requests.post(url + self.path, data=body, timeout=30)
                    self._send(answer.status_code, answer.content)
                    return
                status, content, seconds = spoilt
                proxy.over.wait(seconds)
                self._send(status, content)

            def _send(self, status: int, content: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def handle(self):
                try:
                    super().handle()
                except ConnectionError:
                    return  # the client has given this answer up

            def log_message(self, *_):
                return None

        self.over = threading.Event()
        self._server = Loopback(Handler)
        self.url = self._server.__enter__().url

    def close(self) -> None:
        self.over.set()
        self._server.__exit__()


@pytest.fixture
def proxy(service):
    running = Fault(service.url)
    yield running
    running.close()


def first(count: int, answer: tuple[int, bytes, float], verb: str = "step"):
    """Spoil the first N requests of a verb."""
    left = [count]

    def spoil(asked: str, _: int):
        if asked == verb and left[0]:
            left[0] -= 1
            return answer
        return None

    return spoil


def always(answer: tuple[int, bytes, float]):
    return lambda verb, _: answer if verb == "step" else None


@pytest.fixture
def warnings(caplog):
    """The warnings about services since the test began."""
    caplog.set_level(logging.WARNING, logger="seal.rollout")
    return lambda: [each.getMessage() for each in caplog.records if each.name == "seal.rollout.services"]


def says_left_out(warning: str, url: str) -> bool:
    return warning.startswith("environment service not used until it answers again: ") and url in warning


# --- the service ends ----------------------------------------------------------------


@pytest.mark.fault(
    event="kill -9 of the environment service in an episode; it is started again",
    user_sees="only `episodes_rebuilt` in steps.jsonl, if it is back before a request's last attempt "
    "(`env_service.attempts`)",
    outcome="the episode is rebuilt from its messages and ends as it would have; nothing is sampled or counted twice",
)
def test_a_service_that_is_killed_and_comes_back_costs_nothing(own_service, undisturbed, warnings):
    def restart():
        own_service.kill()
        own_service.start()

    engine = ScriptedEngine(reference_texts(), once(restart))
    played = roll_out([own_service.url], engine, "env_service.attempts=9", trajectories=3)
    assert warnings() == []
    for output, record in played:
        assert outcome((output, record)) == undisturbed
        assert record.infra is None
    assert sum(record.rebuilt for _, record in played) >= 1
    assert len(engine.prompts) == 3 * len(reference_texts())  # every message was sampled once
    assert own_service.open_episodes() == 0


@pytest.mark.fault(
    event="kill -9 of the environment service between the last message and the verdict; it is away for longer than a "
    "request is tried",
    user_sees="one warning that the service is left out, one that it answers again",
    outcome="the finished episode is rebuilt and gets the same verdict",
)
def test_a_service_that_is_killed_before_the_verdict(own_service, undisturbed, warnings):
    def kill_in_the_background():
        own_service.kill()
        threading.Timer(2.0, own_service.start).start()

    engine = ScriptedEngine(reference_texts(), once(kill_in_the_background, at=len(reference_texts())))
    (played,) = roll_out([own_service.url], engine, "env_service.attempts=1")
    assert outcome(played) == undisturbed and played[1].rebuilt == 1
    left_out, back = warnings()
    assert says_left_out(left_out, own_service.url)
    assert back == f"environment service {own_service.url} answers again"


@pytest.mark.fault(
    event="kill -9 of the environment service; nobody starts it again",
    user_sees="the run ends: how many trajectories were lost to what, which service did not answer for how long",
    outcome="trajectories are marked `environment_unreachable` without a reward; past `seal.infra_limit` the run stops",
)
def test_a_service_that_stays_away_ends_the_run_with_a_sentence(own_service):
    engine = ScriptedEngine(reference_texts(), once(own_service.kill))
    played = roll_out([own_service.url], engine, *HASTY, trajectories=2)
    records = [record for _, record in played]
    assert {record.infra for record in records} == {"environment_unreachable"}
    assert all(not record.labels and sum(output.response_mask) == 0 for output, record in played)
    with pytest.raises(InfrastructureFailure) as failure:
        check_infrastructure(records, limit=0.2)
    assert own_service.url in str(failure.value) and "env_service.restart_wait_s=2" in str(failure.value)


@pytest.mark.fault(
    event="kill -9 of one of two environment services",
    user_sees="one warning that it is left out",
    outcome="its episodes are rebuilt on the other one, new ones go there; the run goes on",
)
def test_of_two_services_one_is_killed(service, own_service, undisturbed, warnings):
    engine = ScriptedEngine(reference_texts(), once(own_service.kill))
    played = roll_out([service.url, own_service.url], engine, trajectories=8)
    assert {record.rebuilt for _, record in played} == {0, 1}  # both had episodes
    assert all(outcome(one) == undisturbed for one in played)
    (left_out,) = warnings()
    assert says_left_out(left_out, own_service.url)


@pytest.mark.slow
@pytest.mark.fault(
    event="kill -9 of the service's worker processes",
    user_sees="only `env_service_worker_restarts` in the service's /metrics",
    outcome="the service rebuilds the episodes itself",
)
def test_killed_workers_are_not_noticed(own_service, undisturbed):
    (played,) = roll_out([own_service.url], ScriptedEngine(reference_texts(), once(own_service.kill_workers)))
    assert outcome(played) == undisturbed and played[1].rebuilt == 0
    assert "worker_restarts 1" in own_service.figures()


@pytest.mark.fault(
    event="a service that comes back with other answers (other data, code or limits)",
    user_sees="the trajectory's cause `environment_replay`, with the message that was answered differently",
    outcome="the trajectory is lost and not retried; past `seal.infra_limit` the run stops",
)
def test_a_rebuilt_episode_must_answer_as_before(service, proxy):
    state = [{"role": "user", "content": "other"}]
    data = {"state": state, "reward": 0.0, "is_terminated": False, "info": {}}
    other = json.dumps({"success": True, "data": data}).encode()

    def loses_its_memory():
        def spoil(verb, _):
            body = proxy.seen[-1][1]
            if verb == "step" and body["instance_id"].endswith(".0"):
                return 400, b'{"detail": "instance_id is unknown", "code": "no_episode"}', 0
            if verb == "step" and body["step_id"] == "2":
                return 200, other, 0
            return None

        proxy.spoil = spoil

    ((_, record),) = roll_out([proxy.url], ScriptedEngine(reference_texts(), once(loses_its_memory)))
    assert record.infra == "environment_replay" and "message 2" in record.infra_message
    assert sum(verb == "create" for verb, _ in proxy.seen) == 2


# --- the service fails -------------------------------------------------------------


@pytest.mark.fault(
    event="a service that answers 500, garbage, half an answer or nothing for a while",
    user_sees="nothing",
    outcome="the request is sent again under the same step id, which acts once; the trajectory goes on",
)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((500, b"Internal Server Error", 0), id="500"),
        pytest.param((200, b"<html>garbage", 0), id="garbage"),
        pytest.param((200, b'{"data": {}}', 0), id="half an answer"),
        pytest.param((200, b"{}", 60), id="silence", marks=pytest.mark.slow),
    ],
)
def test_a_short_failure_of_the_service_is_survived(proxy, undisturbed, answer):
    def spell():
        proxy.spoil = first(1, answer)

    (played,) = roll_out([proxy.url], ScriptedEngine(reference_texts(), once(spell)), *HASTY)
    assert outcome(played) == undisturbed and played[1].rebuilt == 0


@pytest.mark.fault(
    event="a service that answers every step with 500, garbage, 429 or nothing",
    user_sees="the cause (`environment_server_error`, `_protocol`, `_busy`, `_timeout`), counted in steps.jsonl",
    outcome="a bounded number of attempts, then the trajectory is lost; its group goes on without it, or is dropped",
)
@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        pytest.param((500, b"", 0), "environment_server_error", id="500 and nothing"),
        pytest.param((500, b"{}", 0), "environment_server_error", id="500", marks=pytest.mark.slow),
        pytest.param((200, b"<html>garbage", 0), "environment_protocol", id="garbage"),
        pytest.param((429, b'{"detail": "4096 episodes are open"}', 0), "environment_busy", id="429"),
        pytest.param((200, b"{}", 60), "environment_timeout", id="silence", marks=pytest.mark.slow),
    ],
)
def test_a_failing_service_is_named_and_not_asked_forever(proxy, monkeypatch, answer, cause):
    monkeypatch.setattr(episode, "MAX_REBUILDS", 1)
    proxy.spoil = always(answer)
    ((output, record),) = roll_out([proxy.url], ScriptedEngine(reference_texts()), *HASTY)
    assert record.infra == cause and proxy.url in record.infra_message
    assert sum(verb == "step" for verb, _ in proxy.seen) == 4  # two attempts, in the episode and in its rebuilt one
    assert output.response_mask == [0] and not mark_groups(["a"], [record])[0].counts


@pytest.mark.fault(
    event="a service that answers every request slowly",
    user_sees="longer steps, and the share of the service in `seconds`",
    outcome="the run goes on; each answer has `env_service.timeout_s`",
)
def test_a_slow_service_is_waited_for(proxy, service, undisturbed):
    def slow(verb, number):
        proxy.over.wait(0.2)

    proxy.spoil = slow
    (played,) = roll_out([proxy.url], ScriptedEngine(reference_texts()), *HASTY)
    assert outcome(played) == undisturbed


@pytest.mark.slow
@pytest.mark.fault(
    event="a service that hangs while another one is up",
    user_sees="one warning that it is left out",
    outcome="its episodes are rebuilt on the other one",
)
def test_episodes_leave_a_hanging_service(proxy, service, undisturbed, warnings):
    proxy.spoil = always((200, b"{}", 60))
    played = roll_out([proxy.url, service.url], ScriptedEngine(reference_texts()), *HASTY, trajectories=6)
    assert all(outcome(one) == undisturbed for one in played)
    assert any(record.rebuilt for _, record in played)
    (left_out,) = warnings()
    assert says_left_out(left_out, proxy.url)


@pytest.mark.fault(
    event="a tool call that hangs",
    user_sees="`the call exceeded ... s` as the call's result, error class `deadline` in the evidence",
    outcome="the worker is replaced, the call counts as an error of the policy, the trajectory goes on",
)
def test_a_hanging_tool_call_is_an_error_of_the_call():
    hang = '<tool_call>{"name":"square_root","arguments":{"number":2,"precision":10000000}}</tool_call>'
    after = '<tool_call>{"name":"add","arguments":{"a":1,"b":2}}</tool_call>'
    task = next(task.id for task in load_tasks().values() if "MathAPI" in task.involved_classes)
    with running_service(BFCL_CALL_SECONDS="0.5") as running:
        ((_, record),) = roll_out([running.url], ScriptedEngine((hang, after, "Done.")), task_id=task)
        assert "worker_restarts 1" in running.figures()
    assert record.infra is None and record.stop == "completed"
    calls = [action["calls"] for action in record.evidence[0]["actions"]]
    assert [call["error"] for made in calls for call in made] == ["deadline", None]


# --- the engine ----------------------------------------------------------------------


@pytest.mark.fault(
    event="a request to the rollout engine is cancelled or aborted",
    user_sees="one warning with the trajectory's task",
    outcome="the trajectory is retried once (`seal.rollout.attempts`)",
)
@pytest.mark.parametrize("kind", ["cancelled", "aborted", "aborted half-way"])
def test_a_cancelled_generation_is_retried(service, undisturbed, kind):
    done = []

    async def before(number):
        if number != MIDDLE or done:
            return None
        done.append(number)
        if kind == "cancelled":
            raise asyncio.CancelledError
        ids = [5, 6] if kind == "aborted half-way" else []
        return TokenOutput(token_ids=ids, log_probs=[-1.0] * len(ids), stop_reason="aborted")

    (played,) = roll_out([service.url], ScriptedEngine(reference_texts(), before))
    assert outcome(played) == undisturbed


@pytest.mark.fault(
    event="the rollout engine hangs or is cancelled again and again",
    user_sees="what the trajectory waited for, at which message and for how long",
    outcome="the trajectory is lost with cause `engine_timeout`, `engine_cancelled` or `trajectory_deadline`",
)
@pytest.mark.parametrize(
    ("deadline", "infra", "words"),
    [
        (["seal.rollout.generation_timeout_s=1"], "engine_timeout", "waited for the rollout engine: message {asked}"),
        (
            ["seal.rollout.deadline_s=8"],
            "trajectory_deadline",
            "waiting for the rollout engine after {answered} messages",
        ),
        ([], "engine_cancelled", "message {asked} was cancelled"),
    ],
)
def test_an_engine_that_hangs_is_named(service, deadline, infra, words):
    async def before(number):
        if number == MIDDLE and not deadline:
            raise asyncio.CancelledError
        if number == MIDDLE:
            await asyncio.sleep(60)

    overrides, open_before = ["seal.rollout.attempts=1", *deadline], service.open_episodes()
    engine = ScriptedEngine(reference_texts(), before)
    ((output, record),) = roll_out([service.url], engine, *overrides)
    asked = len(engine.prompts)  # MIDDLE, unless the machine is so slow that the deadline came first
    assert record.infra == infra and words.format(asked=asked, answered=asked - 1) in record.infra_message
    assert output.response_mask == [0] and service.open_episodes() == open_before


@pytest.mark.fault(
    event="the environment service hangs past the trajectory's deadline",
    user_sees="that the trajectory waited for the environment service, and at which message",
    outcome="the trajectory is lost with cause `trajectory_deadline`",
)
def test_a_deadline_says_that_the_service_was_waited_for(proxy):
    proxy.spoil = always((200, b"{}", 60))
    overrides = ["seal.rollout.deadline_s=3", "seal.rollout.attempts=1"]
    engine = ScriptedEngine(reference_texts())
    ((_, record),) = roll_out([proxy.url], engine, *overrides)
    assert record.infra == "trajectory_deadline"
    assert f"waiting for the environment service after {len(engine.prompts)} messages" in record.infra_message
