"""What every test of the repository starts with."""

import signal

from hypothesis import settings

from tests.support.isolation import hide_other_packages

hide_other_packages()
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
# A shell's background job ignores Ctrl-C, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
