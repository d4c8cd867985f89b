"""What every test of the repository starts with."""

from hypothesis import settings

from tests.support.isolation import hear_interrupts, hide_other_packages

hide_other_packages()
hear_interrupts()
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
