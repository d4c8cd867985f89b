"""The closed loop with a scripted policy: a weakness appears, its cue turns on, it is mastered, the cue turns off.

Real parts: evidence, Psi, the profile, Evolve, the weights and the observations. The
script stands for the policy: it calls nothing where it should, until a cue that tells
it to use its tools has been in its prompt for a few steps.
"""

import json
from dataclasses import asdict

from env_service.environments.bfcl.catalog import documents
from seal.diagnosis.evidence import ActionEvidence, CallEvidence, TurnEvidence
from seal.diagnosis.profile import Profile, Trajectory
from seal.diagnosis.rules import diagnose
from seal.interface.cues import Omega, catalogue
from seal.interface.evolve import evolve, initial_omega
from seal.interface.observation import observe_start
from seal.interface.wording import PromptWording
from seal.reweighting import initial_rho, update_rho, weight
from seal.settings.interface import EvolveSettings
from seal.settings.reweighting import ReweightSettings

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
    """Log lines of a run, one a step."""
    policy, settings, reweighting = ScriptedPolicy(), EvolveSettings(kinds=("guideline",)), ReweightSettings()
    omega, profile, rho, lines = initial_omega(settings), Profile(3), initial_rho(reweighting), []
    for step in range(1, STEPS + 1):
        prompt = observe_start("tools: ls", TOOLS, omega, "base", MODE)
        batch = []
        for index in range(GROUP):
            evidence = policy.rollout(step, index, prompt)
            labels = tuple(d.label for d in diagnose([evidence]))
            batch.append(Trajectory("base", labels, float(labels == ("pass",))))
        policy.learn(prompt)
        profile = profile.updated(step, batch)
        rho = update_rho(rho, profile, reweighting)
        used = [weight(t.labels, rho, reweighting) for t in batch]
        active = omega.cues
        omega, events = evolve(omega, profile, settings, step)
        line = {
            "step": step,
            "cues": active,
            "digest": omega.digest,
            "missing": sum(t.labels == ("missing_tool_call",) for t in batch),
            "rho": rho["missing_tool_call"],
            "w": [min(used), max(used)],
            "events": [asdict(event) for event in events],
        }
        lines.append(json.dumps(line, sort_keys=True))
    return lines


def test_a_weakness_appears_is_cued_is_mastered_and_the_cue_goes():
    log = [json.loads(line) for line in run()]
    events = [(e["step"], e["cue"], e["on"]) for line in log for e in line["events"]]
    assert [(cue, on) for _, cue, on in events] == [("use_tools", True), ("use_tools", False)]
    (appeared, _, _), (mastered, _, _) = events
    assert appeared == WEAK_FROM
    # The cue speaks in the steps after its event, until the window holds no trace of the weakness.
    assert [line["step"] for line in log if line["cues"]] == list(range(appeared + 1, mastered + 1))
    assert mastered == appeared + LESSONS + 3
    assert log[-1]["missing"] == 0 and log[-1]["digest"] == Omega().digest


def test_rho_rises_with_the_weakness_and_returns_to_its_base():
    rho = [json.loads(line)["rho"] for line in run()]
    assert rho[0] == 1.5 and max(rho) > 1.7
    assert abs(rho[-1] - 1.5) < 0.02 and rho.index(max(rho)) < len(rho) - 8


def test_the_run_is_the_same_to_the_byte():
    assert run() == run()
