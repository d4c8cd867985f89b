"""A service for each module; property tests draw the same examples each time and do not fail on a busy machine."""

import pytest
from hypothesis import HealthCheck, settings

from tests.support.rollout_play import running_service

settings.register_profile(
    "repeatable", max_examples=60, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture(scope="module")
def url():
    with running_service() as service:
        yield service.url
