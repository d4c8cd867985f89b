"""The closed loop with a scripted policy: a weakness appears, its cue turns on, it is mastered, the cue turns off.

Real parts: evidence, Psi, the trainer's loop and the observations. The script stands for the policy: it calls nothing
where it should, until a cue that tells it to use its tools has been in its prompt for a few steps.
"""

from env_service.environments.bfcl.catalog import documents
from seal.launch.recipe import read_recipe
from seal.method.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.method.diagnosis.rules import diagnose
from seal.method.interface.cues import Omega, catalogue
from seal.method.interface.observation import observe_start
from seal.method.interface.wording import PromptWording
from seal.records.trajectory import TrajectoryRecord
from seal.settings import SealSettings
from seal.system.paths import HOME
from seal.training.closed_loop import ClosedLoop, mark_groups

TOOLS = documents("GorillaFileSystem")
MODE = PromptWording("Write [TOOL()].", compact=True)
SAY, CALLS = ActionEvidence(), ActionEvidence((CallEvidence("ls", {}, True, result="{}"),))
WEAK_FROM, LESSONS, STEPS, GROUP = 4, 4, 24, 32


class ScriptedPolicy:
    """Fails three quarters of its turns by calling nothing, from step 4 until it has seen four cued steps."""

    def __init__(self):
        self.lessons = 0

    def rollout(self, step, index, prompt):
        weak = step >= WEAK_FROM and self.lessons < LESSONS and index % 4 != 0
        if weak:
            return TurnEvidence(0, 1, (SAY,))
        return TurnEvidence(0, 1, (CALLS, SAY), "answered", True, True, True)

    def learn(self, prompt):
        self.lessons += catalogue()["use_tools"].compact in prompt


def run():
    """The records of a run's steps."""
    changes = ["seal.interface.evolve.kinds=[guideline]", "seal.diagnosis.window=3"]
    loop = ClosedLoop(SealSettings.of(read_recipe(HOME / "exp" / "SEAL.yaml", changes).config))
    policy, lines = ScriptedPolicy(), []
    for step in range(1, STEPS + 1):
        prompt = observe_start("tools: ls", TOOLS, Omega.from_json(loop.omega_to_send()), "base", MODE)
        rows = []
        for index in range(GROUP):
            (found,) = diagnose([policy.rollout(step, index, prompt)])
            score = float(found.label == "pass")
            rows.append(TrajectoryRecord("t", "base", "base", "train", index, score, labels=(found.label,)))
        policy.learn(prompt)
        _, report = loop.step(step, rows, mark_groups(["prompt"] * GROUP, rows))
        lines.append(report.record)
    return lines


def test_a_weakness_appears_is_cued_is_mastered_and_the_cue_goes():
    log = run()
    events = [(event.step, event.cue, event.on) for each in log for event in each.events]
    assert [(cue, on) for _, cue, on in events] == [("use_tools", True), ("use_tools", False)]
    (appeared, _, _), (mastered, _, _) = events
    assert appeared == WEAK_FROM
    # The cue speaks in the steps after its event, until the window holds no trace of the weakness.
    assert [each.step for each in log if each.omega.cues] == list(range(appeared + 1, mastered + 1))
    assert mastered == appeared + LESSONS + 3
    assert log[-1].label_counts == {"pass": GROUP} and not log[-1].omega.cues


def test_rho_rises_with_the_weakness_and_returns_to_its_base():
    rho = [each.rho["missing_tool_call"] for each in run()]
    assert rho[0] == 1.5 and max(rho) > 1.7
    assert abs(rho[-1] - 1.5) < 0.02 and rho.index(max(rho)) < len(rho) - 8
