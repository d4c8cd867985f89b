"""A model that plays the user, as its endpoint is asked and answers, without an episode."""

import asyncio

import aiohttp
import pytest

from seal.rollout.speaker import SpeakerFault
from seal.rollout.user import ModelUser
from seal.settings.user import UserSettings
from tests.support.user_server import user_server


def asked_at(url: str, model: str = "crowd") -> ModelUser:
    user = ModelUser(UserSettings(base_url=url, model=model, timeout_s=10), "seed")
    user.begin({"messages": [], "tools": []})
    return user


def test_it_may_take_longer_than_http_clients_wait_by_default(monkeypatch):
    monkeypatch.setattr("aiohttp.client.DEFAULT_TIMEOUT", aiohttp.ClientTimeout(total=0.1))
    with user_server(lambda body: "I want milk.", seconds=0.5) as (url, asked):

        async def said():
            return await asked_at(url).say([])

        assert asyncio.run(said()).text == "I want milk." and len(asked) == 1


def test_its_seeds_are_those_that_providers_accept():
    with user_server(lambda body: "I want milk.") as (url, asked):

        async def said():
            user = asked_at(url)
            for _ in range(20):  # half of all texts have a larger hash
                await user.say([])

        asyncio.run(said())
    assert len({body["seed"] for body in asked}) == 20 and max(body["seed"] for body in asked) < 2**31


def test_it_waits_as_long_as_its_endpoint_asks_within_the_deadline(monkeypatch):
    monkeypatch.setattr("seal.rollout.user.ATTEMPTS", 1)
    for told in ({"Retry-After": "1"}, {}):
        answers = iter([(429, {"error": "slow down"}, told), "I want milk."])
        with user_server(lambda body, answers=answers: next(answers)) as (url, _):
            said = asyncio.run(asked_at(url).say([]))
        assert (said.text, said.requests) == ("I want milk.", 2)
    with (
        user_server(lambda body: (429, {"error": "come back tomorrow"}, {"Retry-After": "86400"})) as (url, asked),
        pytest.raises(SpeakerFault, match=r"HTTP 429 .*come back tomorrow"),
    ):
        asyncio.run(asked_at(url).say([]))
    assert len(asked) == 1


def test_it_goes_without_the_fields_that_its_model_refuses(caplog):
    caplog.set_level("WARNING", logger="seal.rollout")  # some library may have raised the root logger's level

    def answer(body):
        refused = next((name for name in ("max_tokens", "temperature") if name in body), None)
        words = f"Unsupported parameter: '{refused}' is not supported with this model."
        return (400, {"error": {"message": words}}) if refused else "I want milk."

    with user_server(answer) as (url, asked):

        async def said():
            user = asked_at(f"{url}/?api-version=1", model="newer")  # each process tells once of a model
            return [await user.say([]) for _ in range(2)]

        first, second = asyncio.run(said())
    assert (first.text, first.requests, second.requests) == ("I want milk.", 3, 1)
    assert [asked[-1].keys() & {"max_tokens", "temperature", "seed"}] == [{"seed"}]
    for field in ("max_tokens", "temperature"):
        assert f"newer, is asked without {field}, which its endpoint refuses" in caplog.text


WANTS = {"choices": [{"message": {"content": "I want milk."}}]}


@pytest.mark.parametrize(
    "answer",
    [WANTS | {"usage": {"prompt_tokens": float("inf")}}, {"choices": [{"message": {"content": "\ud800milk"}}]}],
)
def test_an_odd_number_or_text_is_its_fault(answer):
    with pytest.raises(SpeakerFault, match="with no usable message") as fault:
        asked_at("http://127.0.0.1:9/v1")._spoken(answer, 1, 0.1)
    assert fault.value.cause == "user"
