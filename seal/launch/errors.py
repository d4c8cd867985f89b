"""The one error that a user of the launcher sees: a sentence that names what is wrong and how to mend it."""


class LaunchError(Exception):
    """Raised before or instead of a run; its text is the whole message."""
