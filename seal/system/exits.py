"""The exit codes of `launcher.py` and `seal train`; docs/operate.md#exit-codes says what to do about each."""

FINISHED = 0
REFUSED = 1
"""Nothing was trained: a setting, a file or the machine does not fit."""
USAGE = 2
"""The command line cannot be read."""
FAILED = 3
"""Training ended with an error that starting again will not fix by itself."""
INFRASTRUCTURE = 4
"""A process died, hung or stopped answering; starting again resumes."""
CHECKPOINT = 5
"""A checkpoint could not be written or read."""
INTERRUPTED = 130
TERMINATED = 143
