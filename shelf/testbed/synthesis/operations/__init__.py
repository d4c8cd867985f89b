"""The operations for which a task can ask: one module per simulator, one row or function per operation.

An operation looks at the simulators, draws arguments that work, makes its calls on the stage and returns the slots of
its phrases in `phrases.toml`, or None if its precondition fails. Those with one call are rows (`registry.calling`).
"""

# Importing a module registers its operations.
from shelf.testbed.synthesis.operations import (
    files,  # noqa: F401
    mathematics,  # noqa: F401
    messages,  # noqa: F401
    tickets,  # noqa: F401
    trading,  # noqa: F401
    travel,  # noqa: F401
    tweets,  # noqa: F401
    vehicle,  # noqa: F401
)
from shelf.testbed.synthesis.operations.registry import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Operation"]
