"""Property tests here draw the same examples each time and do not fail on a busy machine."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "repeatable", max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
