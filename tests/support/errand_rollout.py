"""A training rollout in an environment that is not the benchmark."""

from env_service.environments.registry import register
from seal.method.interface.cues import Omega, catalogue
from seal.records.trajectory import TrajectoryRecord
from tests.support.rollout_play import ScriptedEngine, roll_out, running_service

SERVED = "errands=tests.support.errands:Errands"
"""What BFCL_ENVIRONMENTS of its service holds."""


def errand_rollout() -> TrajectoryRecord:
    """Its first call fails and gets feedback; the second task of its user is left undone."""
    name, location = SERVED.split("=")
    register(name, location)
    calls = [f'<tool_call>{{"name":"add","arguments":{{"item":"{item}"}}}}</tool_call>' for item in ("", "milk")]
    omega, task = Omega.of(tuple(catalogue())).to_json(), {"task_id": "errand-0", "category": "errands/bag"}
    with running_service(BFCL_ENVIRONMENTS=SERVED) as service:
        ((_, record),) = roll_out([service.url], ScriptedEngine((*calls, "Done.", "Done.")), **task, omega=omega)
    return record
