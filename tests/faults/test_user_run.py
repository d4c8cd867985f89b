"""A run whose users a model plays: the user's endpoint dies, then its trainer, and it ends as if undisturbed."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest

from env_service.environments.registry import GROUP, get_environment, register
from exp.user.rules import said
from seal.system import exits
from seal.system.net import free_port, is_free
from shelf.authoring.scaffold import write_package
from shelf.testbed.policy.adapt import AdaptSettings, adapt
from tests.support.launches import HOME, START_DEADLINE_S
from tests.support.struck_run import NOTICED_S, assert_same, check_intact, error_of, experiment, strike
from tests.support.user_server import FAULTS, user_server

pytestmark = pytest.mark.slow

STEPS, NAME = 4, "struck_list"
ANSWER_S = "0.3"
"""Of the user, so that rollouts wait for it when it dies."""
SEEN_S = 60
"""Within which the endpoint listens."""


@contextlib.contextmanager
def endpoint(port):
    """The users of `exp/user/rules.py` in a process of their own."""
    rules = subprocess.Popen([sys.executable, str(HOME / "exp" / "user" / "rules.py"), str(port), ANSWER_S])
    try:
        deadline = time.monotonic() + SEEN_S
        while is_free(f"http://127.0.0.1:{port}"):
            assert rules.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        yield rules
    finally:
        rules.kill()
        rules.wait()


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The settings of a run in the tutorial's environment, installed as a package, and the port of its users."""
    folder, port = tmp_path_factory.mktemp("package"), free_port()
    write_package(NAME, folder / "package")
    metadata = folder / f"{NAME}-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {NAME}\nVersion: 1\n")
    location = f"{NAME}_env.environment:StruckListEnvironment"
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{NAME} = {location}\n")
    register(NAME, location)
    found = (str(folder / "package"), str(folder), str(HOME))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([*found, os.environ.get("PYTHONPATH", "")]))
        patch.syspath_prepend(found[0])
        start = folder / "start"
        adapt(get_environment(NAME), HOME / "data" / "quickstart_policy", start, AdaptSettings(), lambda *_: None)
        yield (
            (
                f"env_service.env_type={NAME}",
                "seal.data.train={task_file: null, categories: [], prefix_turns: [], limit: 16, mixture: []}",
                "seal.data.val=[{split: eval, limit: 4}]",
                f"seal.user={{base_url: 'http://127.0.0.1:{port}/v1', model: rules}}",
                f"actor_rollout_ref.model.path={start}",
                "data.train_batch_size=4",
                "actor_rollout_ref.actor.ppo_mini_batch_size=4",
                "trainer.save_freq=2",
                f"trainer.test_freq={STEPS}",
                f"trainer.total_training_steps={STEPS}",
            ),
            port,
        )


@pytest.fixture(scope="module")
def quiet(settings):
    given, port = settings
    with experiment("test-user-quiet", given) as run:
        with endpoint(port):
            done = run.finish()
        assert done.returncode == exits.FINISHED, done.stdout
        yield run


@pytest.mark.fault(
    event="the endpoint that plays the user dies in a step",
    user_sees="N of M trajectories of this step were lost to infrastructure (user N) ... the user's endpoint URL does "
    "not answer",
    outcome="no rollout gets a reward of 0; the run ends with code 4, and the next launch resumes",
)
def test_a_run_with_users_ends_the_same_after_their_death_its_own_and_an_interrupt(settings, quiet):
    given, port = settings
    with experiment("test-user-struck", given) as struck:
        with endpoint(port) as rules:
            launcher = struck.start()
            struck.wait_for(launcher, lambda: struck.stage == ("train", 3), "rollouts of step 3", 0.02)
            rules.kill()
            output, _ = launcher.communicate(timeout=NOTICED_S)
        assert launcher.returncode == exits.INFRASTRUCTURE, output
        assert "(user " in (error := error_of(output)) and f"127.0.0.1:{port}/v1 does not answer" in error
        check_intact(struck)
        assert struck.saved == 2
        with endpoint(port):
            code, error = strike(struck, "train", "ray::TaskRunner", "trainer", after=1)
            assert code == exits.INFRASTRUCTURE and "trainer TaskRunner has died" in error
            check_intact(struck)
            launcher = struck.start()
            struck.wait_for(launcher, lambda: struck.stage == ("train", STEPS), f"rollouts of step {STEPS}", 0.02)
            launcher.send_signal(signal.SIGINT)
            output, _ = launcher.communicate(timeout=START_DEADLINE_S)
            assert launcher.returncode == exits.INTERRUPTED and struck.saved == STEPS - 1, output
            check_intact(struck)
            done = struck.finish()
        assert done.returncode == exits.FINISHED, done.stdout
        assert_same(struck, quiet, STEPS)
        rewards = [line["score"] for line in struck.lines("seal_log/trajectories/3.jsonl")]
        assert 0 < sum(rewards) < len(rewards), rewards
        assert all(line["user"] and line["infra"] is None for line in struck.lines("seal_log/trajectories/3.jsonl"))


def test_users_that_fail_in_every_way_cost_attempts_and_no_reward(settings, quiet):
    """Which message fails, and how, follows from its request's seed."""
    given, _ = settings
    faults, hang_s = [answer for _, answer in FAULTS.values()], 2.0

    def odd(body):
        chosen, draw = divmod(body["seed"], 8)
        if draw:
            return said(body["messages"], body["seed"])
        number = chosen % (len(faults) + 1)
        if number == len(faults):
            time.sleep(2 * hang_s)
            return said(body["messages"], body["seed"])
        return faults[number](body)

    short = f"seal.user.timeout_s={hang_s}", "trainer.total_training_steps=2"
    with user_server(odd) as (user, _), experiment("test-user-odd", (*given, *short)) as run:
        done = run.finish(f"seal.user.base_url={user}")
        assert done.returncode == exits.FINISHED, done.stdout
        one, two = (run.lines(f"seal_log/trajectories/{step}.jsonl") for step in (1, 2))
    assert any(line["attempts"] > 1 and line["infra"] is None for line in one)
    lost = [line for line in one + two if line["infra"]]
    assert {line["infra"] for line in lost} <= {"user", "user_timeout", "user_role"}
    assert not any(line["labels"] or line["score"] for line in lost)
    undisturbed, expected = (
        {(line["task_id"], line["sample"]): (line["output"], line["score"]) for line in lines if line["attempts"] == 1}
        for lines in (one, quiet.lines("seal_log/trajectories/1.jsonl"))
    )
    assert undisturbed and all(expected[key] == line for key, line in undisturbed.items())
