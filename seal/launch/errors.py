"""The one error that a user of the launcher sees: a sentence that names what is wrong and how to mend it."""

from seal import exits


class LaunchError(Exception):
    """Raised before or instead of a run; its text is the whole message, `code` the launcher's exit code."""

    def __init__(self, message: str, code: int = exits.REFUSED):
        super().__init__(message)
        self.code = code
