"""What every test of the repository starts with."""

from tests.support.isolation import hide_other_packages

hide_other_packages()
