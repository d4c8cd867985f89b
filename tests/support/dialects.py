"""The same agent in each dialect of the gateway, with the SDK of its own; its tools without MCP."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from seal.rollout.harness.task import Task

Items = list[Any]
Step = Callable[[Items], Awaitable[tuple[str, list[tuple[str, str, dict[str, Any]]]]]]
"""Asks the policy with a history, to which it adds the answer; returns text and calls: id, name, arguments."""

SYSTEM = "Be helpful."


async def play(task: Task, ask: Step, result: Callable[[str, str], Any], grouped: bool = False) -> None:
    """Answer every message of the user. result: the answer to a call; grouped: those of one message as one."""
    history: Items = []
    async for message in task.user_messages():
        history.append({"role": "user", "content": message})
        text, calls = await ask(history)
        while calls:
            results = [result(each, await task.call(name, given)) for each, name, given in calls]
            history += [{"role": "user", "content": results}] if grouped else results
            text, calls = await ask(history)
        await task.answer(text)


async def chat(task: Task, stream: bool = False) -> None:
    async with AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0) as client:

        async def ask(history: Items):
            messages = [{"role": "system", "content": SYSTEM}, *history]
            given = {"model": task.model, "messages": messages, "tools": task.tools}
            if stream:
                async with client.chat.completions.stream(**given, stream_options={"include_usage": True}) as told:
                    whole = await told.get_final_completion()
            else:
                whole = await client.chat.completions.create(**given)
            assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens > 0
            said, calls = whole.choices[0].message, whole.choices[0].message.tool_calls or []
            assert whole.choices[0].finish_reason == ("tool_calls" if calls else "stop")
            # The parsed arguments that the stream adds are no part of a message.
            repeated = said.model_dump(exclude_none=True, exclude={"parsed": True})
            history.append(repeated)
            return said.content, [(each.id, each.function.name, json.loads(each.function.arguments)) for each in calls]

        await play(task, ask, lambda call, text: {"role": "tool", "tool_call_id": call, "content": text})


async def chat_streamed(task: Task) -> None:
    await chat(task, stream=True)


async def messages(task: Task, stream: bool = False) -> None:
    tools = [
        {"name": each["name"], "description": each["description"], "input_schema": each["parameters"]}
        for each in (tool["function"] for tool in task.tools)
    ]
    async with AsyncAnthropic(base_url=task.anthropic_base_url, api_key=task.api_key, max_retries=0) as client:

        async def ask(history: Items):
            given = {"model": task.model, "messages": history, "tools": tools, "max_tokens": 4096}
            given |= {"system": [{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}]}
            if stream:
                async with client.messages.stream(**given) as told:
                    assert "".join([text async for text in told.text_stream]) is not None
                    whole = await told.get_final_message()
            else:
                whole = await client.messages.create(**given)
            assert whole.usage.input_tokens > 0 and whole.usage.output_tokens > 0
            calls = [block for block in whole.content if block.type == "tool_use"]
            assert whole.stop_reason == ("tool_use" if calls else "end_turn")
            history.append({"role": "assistant", "content": whole.content})
            text = "".join(block.text for block in whole.content if block.type == "text")
            return text, [(each.id, each.name, each.input) for each in calls]

        def result(call: str, text: str) -> dict[str, Any]:
            content = [{"type": "text", "text": text}]
            return {"type": "tool_result", "tool_use_id": call, "content": content, "is_error": False}

        await play(task, ask, result, grouped=True)


async def messages_streamed(task: Task) -> None:
    await messages(task, stream=True)


async def messages_by_tool_runner(task: Task) -> None:
    """Anthropic's own loop, which would have the server keep the history."""

    def runnable(name: str, document: dict[str, Any]) -> Any:
        async def run(**arguments: Any) -> str:
            return await task.call(name, arguments)

        text = document["description"]
        return anthropic.beta_async_tool(run, name=name, description=text, input_schema=document["parameters"])

    history: Items = []
    async with AsyncAnthropic(base_url=task.anthropic_base_url, api_key=task.api_key, max_retries=0) as client:
        async for message in task.user_messages():
            history.append({"role": "user", "content": message})
            tools = [runnable(each["function"]["name"], each["function"]) for each in task.tools]
            given = {"model": task.model, "system": SYSTEM, "max_tokens": 4096, "tools": tools}
            runner = client.beta.messages.tool_runner(**given, messages=list(history))
            async for said in runner:
                history.append({"role": "assistant", "content": said.content})
                if results := await runner.generate_tool_call_response():
                    history.append(results)
            await task.answer("".join(block.text for block in said.content if block.type == "text"))


async def responses(task: Task, stream: bool = False, by_id: bool = False) -> None:
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in task.tools]
    async with AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0) as client:
        earlier: list[str] = []

        async def ask(history: Items):
            given = {"model": task.model, "input": history, "instructions": SYSTEM, "tools": tools, "store": by_id}
            if by_id and earlier:
                given["previous_response_id"] = earlier[-1]
            if stream:
                async with client.responses.stream(**given) as told:
                    whole = await told.get_final_response()
            else:
                whole = await client.responses.create(**given)
            assert whole.status == "completed" and whole.usage.total_tokens > whole.usage.output_tokens > 0
            calls = [item for item in whole.output if item.type == "function_call"]
            earlier.append(whole.id)
            if by_id:
                history.clear()
            else:
                history += [item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in whole.output]
            return whole.output_text, [(each.call_id, each.name, json.loads(each.arguments)) for each in calls]

        await play(task, ask, lambda call, text: {"type": "function_call_output", "call_id": call, "output": text})


async def responses_streamed(task: Task) -> None:
    await responses(task, stream=True)


async def responses_by_id(task: Task) -> None:
    await responses(task, by_id=True)


async def responses_by_id_streamed(task: Task) -> None:
    await responses(task, stream=True, by_id=True)


USER = [{"role": "user", "content": "Hello"}]


async def ends(task: Task) -> None:
    """Each SDK reads a cut message and a refusal as its own; the first dialogue says what is scored."""
    openai_client = AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0)
    anthropic_client = AsyncAnthropic(base_url=task.anthropic_base_url, api_key=task.api_key, max_retries=0)
    async with openai_client, anthropic_client:
        chat, messages = openai_client.chat.completions.create, anthropic_client.messages.create
        responses, given = openai_client.responses.create, {"model": task.model}
        cut = [
            (await chat(**given, messages=USER, max_tokens=5)).choices[0].finish_reason,
            (await messages(**given, messages=USER, max_tokens=5)).stop_reason,
            (await responses(**given, input="Hello", max_output_tokens=16)).incomplete_details.reason,
        ]
        assert cut == ["length", "max_tokens", "max_output_tokens"]
        streamed = [event async for event in await responses(**given, input="Hello", max_output_tokens=16, stream=True)]
        assert [event.sequence_number for event in streamed] == [*range(len(streamed))]
        assert streamed[-1].type == "response.incomplete"
        [listed] = (await openai_client.models.list()).data
        assert (listed, listed.created) == (await openai_client.models.retrieve(task.model), 0)
        given = {"model": "another"}
        with pytest.raises(openai.BadRequestError) as refused:
            await chat(**given, messages=USER)
        assert refused.value.type == "invalid_request_error"
        with pytest.raises(openai.BadRequestError):
            await responses(**given, input="Hello")
        with pytest.raises(anthropic.BadRequestError) as refused:
            await messages(**given, messages=USER, max_tokens=5)
        assert refused.value.body["type"] == "error" and refused.value.type == "invalid_request_error"
        with pytest.raises(anthropic.AuthenticationError) as refused:
            await anthropic_client.with_options(api_key="x").messages.create(**given, messages=USER, max_tokens=5)
        assert refused.value.type == "authentication_error"
    async for _ in task.user_messages():
        await task.answer("Done.")
