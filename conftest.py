"""What every test of the repository starts with."""

from hypothesis import settings

from tests.support.isolation import hide_other_packages

hide_other_packages()
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
