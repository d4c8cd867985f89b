"""The leak guard of one episode: what its task's reference knows and nobody has told yet."""

from __future__ import annotations

from env_service.environments.bfcl.catalog import Task, all_tools
from env_service.environments.bfcl.tools import parse_reference
from env_service.environments.bfcl.verifier import reference
from seal.interface.cues import wording
from seal.interface.guard import LeakGuard, public_documents, reference_secrets


def episode_guard(task: Task) -> LeakGuard:
    """A guard that knows the reference's calls, results and states; the tools' documents and our wording are public."""
    expected = reference(task)
    calls = [parse_reference(call) for turn in task.reference for call in turn]
    secrets = reference_secrets(
        calls,
        [result for turn in expected for result in turn.results],
        [dict(turn.instances) for turn in expected],
    )
    return LeakGuard(secrets, (*public_documents(all_tools(task)), *wording()))
