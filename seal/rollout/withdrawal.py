"""A withdrawal: the same tasks under Omega, under Omega without one of its cues, and in the plain interface.

The difference says what a cue still gives the policy, and whether a skill survives
without it. Each validation plays the tasks of `seal.data.withdrawal` in all three ways.
"""

from collections.abc import Mapping
from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput

from seal.interface.cues import Omega
from seal.records.trajectory import EVERY_CUE, NO_CUE, WITHDRAWAL_AGENTS
from seal.rollout.agent_loop import SEALAgentLoop

OMEGA = "withdrawal_omega"
"""The key under which rows of a validation carry Omega_t; plain rows do not read it."""


class ShownLoop(SEALAgentLoop):
    """A training episode under Omega; registered as `seal_shown`."""

    async def run(self, sampling_params: dict[str, Any], **row) -> AgentLoopOutput:
        """Roll one trajectory out; row holds the data set's columns and `withdrawal_omega`."""
        return await super().run(sampling_params, **row, training=True, omega=row[OMEGA], withdrawn="")


class WithdrawnLoop(SEALAgentLoop):
    """A training episode under Omega without one cue; registered as `seal_withdrawn`."""

    async def run(self, sampling_params: dict[str, Any], **row) -> AgentLoopOutput:
        """Roll one trajectory out; row holds the data set's columns and `withdrawal_omega`."""
        omega, category = Omega.from_json(row[OMEGA]), row["extra_info"]["category"]
        cue = withdrawn_cue(omega, category, row)
        rest = omega.without(cue, category).to_json()
        return await super().run(sampling_params, **row, training=True, omega=rest, withdrawn=cue or NO_CUE)


class PlainLoop(SEALAgentLoop):
    """An evaluation episode; registered as `seal_plain`."""

    async def run(self, sampling_params: dict[str, Any], **row) -> AgentLoopOutput:
        """Roll one trajectory out; row holds the data set's columns."""
        return await super().run(sampling_params, **row, withdrawn=EVERY_CUE)


def withdrawn_cue(omega: Omega, category: str, row: Mapping[str, Any]) -> str:
    """The cue that this row goes without: the cues of its category in turn, shifted by the step; "" without any."""
    cues = omega.for_category(category)
    number = int(row["index"]) // len(WITHDRAWAL_AGENTS)
    return cues[(number + int(row["global_steps"])) % len(cues)] if cues else ""
