"""Which service an episode is played on."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from env_service.client import AsyncServiceClient, ServiceError
from seal.rollout.services import Services, addresses, rank

URLS = st.lists(st.from_regex(r"http://[a-z]{1,8}:80\d\d", fullmatch=True), min_size=1, max_size=6, unique=True)


@given(st.text(max_size=20), URLS, st.randoms(use_true_random=False))
def test_the_order_depends_on_key_and_addresses_alone(key, urls, rng):
    other = list(urls)
    rng.shuffle(other)
    assert rank(key, urls) == rank(key, other)
    assert sorted(rank(key, urls)) == sorted(urls)


@given(st.text(max_size=20), URLS, st.data())
def test_losing_a_service_moves_only_its_own_episodes(key, urls, data):
    lost = data.draw(st.sampled_from(urls))
    left = [url for url in urls if url != lost]
    assert [url for url in rank(key, urls) if url != lost] == rank(key, left)


def test_the_load_is_even():
    urls = [f"http://host{number}:8082" for number in range(4)]
    drawn = [rank(f"episode {number}", urls)[0] for number in range(4000)]
    assert all(900 < drawn.count(url) < 1100 for url in urls)


@pytest.mark.parametrize("env_url", ["http://a:1", ["http://a:1", "http://b:2"]])
def test_one_address_or_a_list(env_url):
    assert addresses(env_url)[0] == "http://a:1"


def test_a_service_that_failed_is_left_out_and_none_left_is_a_fault():
    async def scenario():
        clients = [AsyncServiceClient(f"http://127.0.0.1:{port}", deadline_s=1.0, attempts=1) for port in (9, 19)]
        services = Services(clients, restart_wait_s=0.5)
        chosen = await services.choose("key")
        services.failed(chosen, ServiceError("environment_unreachable", "nobody there"))
        other = await services.choose("key")
        services.failed(other, ServiceError("environment_unreachable", "nobody there"))
        try:
            with pytest.raises(ServiceError) as fault:
                await services.choose("key")
        finally:
            await services.close()
        return chosen.url, other.url, str(fault.value)

    first, second, message = asyncio.run(scenario())
    assert {first, second} == {"http://127.0.0.1:9", "http://127.0.0.1:19"}
    assert first in message and second in message and "env_service.restart_wait_s=0.5" in message
