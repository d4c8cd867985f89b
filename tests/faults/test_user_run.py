"""A run whose users a model plays: the user's endpoint dies, then its trainer, and it ends as if undisturbed."""

import contextlib
import os
import subprocess
import sys
import time

import pytest

from env_service.environments.registry import GROUP, get_environment, register
from seal.system import exits
from seal.system.net import free_port, is_free
from shelf.authoring.scaffold import write_package
from shelf.testbed.policy.adapt import AdaptSettings, adapt
from tests.support.launches import HOME
from tests.support.struck_run import NOTICED_S, assert_same, check_intact, error_of, experiment, strike

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


@pytest.mark.fault(
    event="the endpoint that plays the user dies in a step",
    user_sees="N of M trajectories of this step were lost to infrastructure (user N) ... the user's endpoint URL does "
    "not answer",
    outcome="no rollout gets a reward of 0; the run ends with code 4, and the next launch resumes",
)
def test_a_run_with_users_ends_the_same_after_their_death_and_its_own(settings):
    given, port = settings
    with experiment("test-user-quiet", given) as quiet, experiment("test-user-struck", given) as struck:
        with endpoint(port) as rules:
            done = quiet.finish()
            assert done.returncode == exits.FINISHED, done.stdout
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
            done = struck.finish()
        assert done.returncode == exits.FINISHED, done.stdout
        assert_same(struck, quiet, STEPS)
        rewards = [line["score"] for line in struck.lines("seal_log/trajectories/3.jsonl")]
        assert 0 < sum(rewards) < len(rewards), rewards
        assert all(line["user"] and line["infra"] is None for line in struck.lines("seal_log/trajectories/3.jsonl"))
