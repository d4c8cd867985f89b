"""The one error that a user of a command sees: a sentence that says what is wrong and how to fix it."""

from seal.system import exits
from seal.system.causes import Cause


class LaunchError(Exception):
    """Raised before or instead of a run; its text is the whole message, `code` the exit code of the command."""

    def __init__(self, message: str, code: int = exits.REFUSED, cause: Cause = "refused"):
        super().__init__(message)
        self.code = code
        self.cause = cause
