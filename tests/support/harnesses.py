"""Harnesses of the tests: agents as a user would write them, and ones that misbehave."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from mcp import Client
from openai import APIStatusError, AsyncOpenAI

from seal.rollout.harness.mcp import USER
from seal.rollout.harness.task import ENDED, MAX_TEXT, Task

Messages = list[dict[str, Any]]
Call = Callable[[str, dict[str, Any]], Awaitable[str]]


async def turn(
    client: AsyncOpenAI, task: Task, messages: Messages, call: Call, tools: Messages | None = None, **options: Any
) -> str:
    """Ask the policy and run its calls until it answers; return the answer."""
    while True:
        shown = task.tools if tools is None else tools
        asked = await client.chat.completions.create(model=task.model, messages=messages, tools=shown, **options)
        said = asked.choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return said.content or ""
        for each in said.tool_calls:
            text = await call(each.function.name, json.loads(each.function.arguments))
            messages.append({"role": "tool", "tool_call_id": each.id, "content": text})


def client_of(task: Task) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=task.base_url, api_key=task.api_key, max_retries=0)


async def converse(task: Task, messages: Messages, call: Call, **options: Any) -> None:
    """Answer every message of the user; the history grows in `messages`. options: of the client."""
    async with client_of(task).with_options(**options) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            await task.answer(await turn(client, task, messages, call))


async def native(task: Task) -> None:
    """An agent with native tool calls, without MCP."""
    await converse(task, [], task.call)


async def hasty(task: Task) -> None:
    """The same agent, whose SDK waits a second for the policy and raises."""
    await converse(task, [], task.call, timeout=1.0)


async def guarding(task: Task) -> None:
    """The same agent with a guardrail that asks the policy beside it, and earlier."""
    messages: Messages = []
    async with client_of(task).with_options(timeout=1.0) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            judged = asyncio.create_task(asked(client, task, [{"role": "user", "content": "Is it polite?"}]))
            await asyncio.sleep(0.1)
            answer = await turn(client, task, messages, task.call)
            await judged
            await task.answer(answer)


async def pressing(task: Task) -> None:
    """An agent whose SDK waits a moment for a tool and raises."""
    async with client_of(task) as client:
        async for message in task.user_messages():
            await turn(client, task, [{"role": "user", "content": message}], task.call)
            await asyncio.wait_for(task.call("ls", {}), 0.2)


async def remembering(task: Task) -> None:
    """An agent that asks the gateway for embeddings once the policy has answered."""
    async with client_of(task) as client:
        async for message in task.user_messages():
            answer = await turn(client, task, [{"role": "user", "content": message}], task.call)
            await client.embeddings.create(model=task.model, input=answer)


async def odd(task: Task) -> None:
    """The same agent, which first says what is no text."""
    for text in (None, 3, "\ud800", "x" * (MAX_TEXT + 1)):
        with pytest.raises(ValueError):
            await task.say(text)
    await native(task)


async def giving_up(task: Task) -> None:
    """An agent that gives up a call, as for its own deadline, before it makes the next one."""
    messages: Messages = []

    async def call(name: str, arguments: dict[str, Any]) -> str:
        given_up = asyncio.create_task(task.call(f"nothing_{name}", {}))
        await asyncio.sleep(0)
        given_up.cancel()
        answer = await task.call(name, arguments)
        assert "nothing_" not in answer
        return answer

    await converse(task, messages, call)


async def over_mcp(task: Task) -> None:
    """The same over MCP, the user included."""
    messages: Messages = []
    async with client_of(task) as client, Client(task.mcp_url) as tools:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return (await tools.call_tool(name, arguments)).content[0].text

        listed = [tool.name for tool in (await tools.list_tools()).tools]
        assert listed == [USER, *(tool["function"]["name"] for tool in task.tools)]
        message = await call(USER, {})
        while message != ENDED:
            messages.append({"role": "user", "content": message})
            message = await call(USER, {"answer": await turn(client, task, messages, call)})


async def by_its_policy(task: Task, server: str = "") -> None:
    """An agent of a generic MCP client: the policy itself calls the tool that is the user."""
    messages: Messages = [{"role": "system", "content": "Be helpful."}, {"role": "user", "content": "Begin."}]
    async with client_of(task) as client, Client(task.mcp_url) as tools:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return (await tools.call_tool(name.removeprefix(server), arguments)).content[0].text

        listed = (await tools.list_tools()).tools
        shown = [
            {"name": server + tool.name, "description": tool.description, "parameters": tool.input_schema}
            for tool in listed
        ]
        await turn(client, task, messages, call, [{"type": "function", "function": tool} for tool in shown])


async def by_names_with_a_server(task: Task) -> None:
    """The same with a client that writes the name of the server before those of its tools."""
    await by_its_policy(task, "mcp__seal__")


async def bare(task: Task) -> None:
    """An agent that sends the documents of its tools without what a request has around them."""
    async with client_of(task) as client:
        await turn(client, task, [{"role": "user", "content": "?"}], task.call, [t["function"] for t in task.tools])


async def streaming(task: Task) -> None:
    """An agent that asks for streams and log-probs, as text without tools."""
    messages: Messages = list(task.messages)
    async with client_of(task) as client:
        while not task.ended:
            text = ""
            async for chunk in await client.chat.completions.create(
                model=task.model, messages=messages, stream=True, logprobs=True
            ):
                for choice in chunk.choices:
                    text += choice.delta.content or ""
            messages += [{"role": "assistant", "content": text}, *await task.say(text)]


async def compacting(task: Task) -> None:
    """An agent that keeps of each turn only the user's words."""
    users: list[str] = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            users.append(message)
            messages: Messages = [{"role": "user", "content": "\n".join(users)}]
            await task.answer(await turn(client, task, messages, task.call))


async def summarising(task: Task) -> None:
    """An agent that asks the policy for a summary after the conversation has ended."""
    await native(task)
    async with client_of(task) as client:
        with pytest.raises(APIStatusError, match="This rollout has ended"):
            await client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": "Sum up."}])


async def insisting(task: Task) -> None:
    """An agent that asks on, with a short history, when a budget is used up."""
    async with client_of(task) as client:
        with pytest.raises(APIStatusError, match="used up its budget"):
            await native(task)
        with pytest.raises(APIStatusError, match="This rollout has ended"):
            await client.chat.completions.create(model=task.model, messages=[{"role": "user", "content": "Again."}])


async def javascript(task: Task) -> None:
    """An agent whose SDK has one kind of numbers: it repeats 57.0 as 57."""
    messages: Messages = []

    async def call(name: str, arguments: dict[str, Any]) -> str:
        for function in (each["function"] for each in messages[-1]["tool_calls"]):
            function["arguments"] = function["arguments"].replace(".0", "")
        return await task.call(name, arguments)

    await converse(task, messages, call)


async def prefilling(task: Task) -> None:
    """An agent that begins the policy's message from the second turn on."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            begun = [{"role": "assistant", "content": "Thought:"}] if messages else []
            messages += [{"role": "user", "content": message}, *begun]
            await task.answer(await turn(client, task, messages, task.call))


async def reminding(task: Task) -> None:
    """An agent that repeats a rule as a system message before each later message of the user."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            rule = [{"role": "system", "content": "Be brief."}] if messages else []
            messages += [*rule, {"role": "user", "content": message}]
            await task.answer(await turn(client, task, messages, task.call))


async def unordered(task: Task) -> None:
    """An agent that gives the answers of parallel calls in the order in which they came, here the last one first."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            while calls := await asked(client, task, messages):
                answers = [await task.call(each.function.name, json.loads(each.function.arguments)) for each in calls]
                messages += [
                    {"role": "tool", "tool_call_id": each.id, "content": text}
                    for each, text in reversed([*zip(calls, answers, strict=True)])
                ]
            await task.answer(messages[-1]["content"])


async def at_once(task: Task) -> None:
    """An agent whose SDK makes the calls of a message at once; here the last one comes first."""
    await overtaking(task, task.call, 0)


async def at_once_over_mcp(task: Task) -> None:
    async with Client(task.mcp_url) as tools:

        async def call(name: str, arguments: dict[str, Any]) -> str:
            return (await tools.call_tool(name, arguments)).content[0].text

        await overtaking(task, call, 0)


async def choosy(task: Task) -> None:
    """The same agent, which refuses the first call of each message."""
    await overtaking(task, task.call, 1)


async def overtaking(task: Task, call: Call, first: int) -> None:
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            while calls := await asked(client, task, messages):
                made = []
                for each in calls[: first - 1 if first else None : -1]:
                    made.append(asyncio.create_task(call(each.function.name, json.loads(each.function.arguments))))
                    await asyncio.sleep(0.02)
                answers = [*["Refused."] * first, *[await each for each in reversed(made)]]
                messages += [
                    {"role": "tool", "tool_call_id": each.id, "content": text}
                    for each, text in zip(calls, answers, strict=True)
                ]
            await task.answer(messages[-1]["content"])


async def asked(client: AsyncOpenAI, task: Task, messages: Messages) -> list[Any]:
    """Ask the policy once; return its calls."""
    answer = await client.chat.completions.create(model=task.model, messages=messages, tools=task.tools)
    messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    return answer.choices[0].message.tool_calls or []


async def strict(task: Task) -> None:
    """An agent whose SDK raises at a tool that it does not know."""

    async def call(name: str, arguments: dict[str, Any]) -> str:
        assert name in {tool["function"]["name"] for tool in task.tools}
        return await task.call(name, arguments)

    await converse(task, [], call)


async def impatient(task: Task) -> None:
    """An agent whose SDK repeats a request after a second."""
    await converse(task, [], task.call, timeout=1.0, max_retries=5)


async def thoughtless(task: Task) -> None:
    """An agent whose SDK takes the thoughts out of the history."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            answer = await turn(client, task, messages, task.call)
            messages[-1]["content"] = answer.rpartition("</think>")[2].strip()
            await task.answer(answer)


async def noting(task: Task) -> None:
    """An agent that has the policy write itself a note before it gives each answer."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            answer = await turn(client, task, messages, task.call)
            note = [{"role": "user", "content": f"Write down what you did: {answer}"}]
            await client.chat.completions.create(model=task.model, messages=note)
            await task.answer(answer)


async def choosing(task: Task) -> None:
    """An agent that asks for each message twice and goes on from the second one."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            while True:
                await asked(client, task, list(messages))
                if not (calls := await asked(client, task, messages)):
                    break
                for each in calls:
                    text = await task.call(each.function.name, json.loads(each.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": each.id, "content": text})
            await task.answer(messages[-1]["content"])


async def as_text(task: Task) -> None:
    """An agent whose SDK repeats calls as text."""
    messages: Messages = [{"role": "system", "content": "Be brief."}]
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            while calls := await asked(client, task, messages):
                told = [f"{each.function.name} with {each.function.arguments}" for each in calls]
                messages[-1] = {"role": "assistant", "content": f"Calling tools: {told}"}
                for each in calls:
                    text = await task.call(each.function.name, json.loads(each.function.arguments))
                    messages.append({"role": "user", "content": f"Observation: {text}"})
            await task.answer(messages[-1]["content"])


async def reworded(task: Task) -> None:
    """An agent whose guardrail asks about an answer and then gives another one."""
    async with client_of(task) as client:
        async for message in task.user_messages():
            for text in (message, "Is it polite?"):
                asked = [{"role": "user", "content": text}]
                await client.chat.completions.create(model=task.model, messages=asked, max_tokens=1 + len(text))
            await task.answer("I am sorry.")


async def adding(task: Task) -> None:
    """An agent that shows a tool from the second turn on, beside a message with its name."""
    await growing(task, lambda tools, later: [tool for tool in tools if later or tool["function"]["name"] != "cd"])


async def amending(task: Task) -> None:
    """An agent that changes its tools' descriptions from the second turn on."""

    def amended(tools: Messages, later: bool) -> Messages:
        for tool in tools if later else ():
            tool["function"]["description"] += " NEW RULE"
        return tools

    await growing(task, amended)


async def growing(task: Task, shown: Callable[[Messages, bool], Messages]) -> None:
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": f"{message} Use cd."})
            tools = shown(task.tools, len(messages) > 1)
            await task.answer(await turn(client, task, messages, task.call, tools))


async def helping(task: Task) -> None:
    """An agent that makes a call of its own in each turn."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            await task.call("ls", {"a": True})
            await task.answer(await turn(client, task, messages, task.call))


async def in_code(task: Task) -> None:
    """An agent whose policy writes calls as code, which the agent runs; SDKs add defaults."""
    async with client_of(task) as client:
        async for message in task.user_messages():
            asked = [{"role": "user", "content": message}]
            said = (await client.chat.completions.create(model=task.model, messages=asked)).choices[0].message.content
            assert said.startswith("mkdir(")
            await task.call("mkdir", {"dir_name": said.removeprefix("mkdir('").removesuffix("')")})
            await task.answer("It is there.")


async def guarded(task: Task) -> None:
    """An agent whose guardrail asks for one word about each answer."""
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            answer = await turn(client, task, messages, task.call)
            judged = [{"role": "user", "content": f"Is this polite? {answer}"}]
            await client.chat.completions.create(model=task.model, messages=judged, max_tokens=1)
            await task.answer(answer)


async def wandering(task: Task) -> None:
    """An agent that asks for a title beside each answer, which the end of the conversation finds under way."""
    messages: Messages = []
    async with client_of(task) as client:

        async def title() -> None:
            with suppress(APIStatusError):
                title = [{"role": "user", "content": "A title?"}]
                await client.chat.completions.create(model=task.model, messages=title)

        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            answer = await turn(client, task, messages, task.call)
            titled = asyncio.create_task(title())
            await asyncio.sleep(0.2)
            await task.answer(answer)
        await titled


async def short(task: Task) -> None:
    """An agent that asks for four tokens at most."""
    async with client_of(task) as client:
        async for message in task.user_messages():
            await task.answer(await turn(client, task, [{"role": "user", "content": message}], task.call, max_tokens=4))


async def repeating(task: Task) -> None:
    """An agent that asks again, the cut message in its history, until one is whole."""
    async with client_of(task) as client:
        messages: Messages = [{"role": "user", "content": "Go on."}]
        while True:
            said = (await client.chat.completions.create(model=task.model, messages=messages)).choices[0]
            messages += [{"role": "assistant", "content": said.message.content}, {"role": "user", "content": "Again."}]


async def refusing(task: Task) -> None:
    """An agent that never asks the policy."""
    async for _ in task.user_messages():
        await task.answer("No.")


async def judging(task: Task) -> None:
    """An agent that needs JSON as an answer, and says so."""
    await needing_json(task, task.fail)


async def needing_json(task: Task, otherwise: Callable[[str], Awaitable[None]]) -> None:
    messages: Messages = []
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages.append({"role": "user", "content": message})
            try:
                await task.answer(json.dumps(json.loads(await turn(client, task, messages, task.call))))
            except ValueError as error:
                return await otherwise(f"no JSON: {error}")


async def raising_later(task: Task) -> None:
    """An agent whose SDK raises at an answer that is no JSON."""

    async def otherwise(text: str) -> None:
        raise ValueError(text)

    await needing_json(task, otherwise)


async def giving_up_at_once(task: Task) -> None:
    """An agent that cannot start, and says why."""
    await task.fail("no index of the shop")


async def showing(task: Task) -> None:
    """An agent that shows the policy a long example first."""
    shown = [{"role": "user", "content": "Sort."}, {"role": "assistant", "content": "sort " * 300}]
    async with client_of(task) as client:
        async for message in task.user_messages():
            await task.answer(await turn(client, task, [*shown, {"role": "user", "content": message}], task.call))


async def demanding(task: Task) -> None:
    """An agent whose SDK demands JSON of the policy after its first answer, which the gateway refuses."""
    form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"type": "object"}}}
    async with client_of(task) as client:
        async for message in task.user_messages():
            messages: Messages = [{"role": "user", "content": message}]
            await turn(client, task, messages, task.call)
            await turn(client, task, [*messages, *messages[:1]], task.call, response_format=form)


async def puzzled(task: Task) -> None:
    """An agent whose error repeats what its policy wrote as JSON: half of a surrogate pair."""
    async with client_of(task) as client:
        async for message in task.user_messages():
            await turn(client, task, [{"role": "user", "content": message}], task.call)
            raise ValueError("no such city: \ud83d")


async def puzzled_aloud(task: Task) -> None:
    """The same agent, which says that its policy failed."""
    try:
        await puzzled(task)
    except ValueError as error:
        await task.fail(str(error))


async def raising(task: Task) -> None:
    raise ZeroDivisionError("of the harness")


async def exiting(task: Task) -> None:
    sys.exit(3)


async def leaving(task: Task) -> None:
    """An agent that returns before the conversation has ended."""


async def doubling(task: Task) -> None:
    """An agent that answers twice."""
    async for _ in task.user_messages():
        await task.answer("Done.")
        await task.answer("Done.")


async def doubling_at_once(task: Task) -> None:
    async for _ in task.user_messages():
        await asyncio.gather(task.answer("Done."), task.answer("Done."))


async def doubling_over_mcp(task: Task) -> None:
    async with Client(task.mcp_url) as tools:
        await tools.call_tool(USER, {})
        answered = (tools.call_tool(USER, {"answer": "Done."}) for _ in range(5))
        raise next(
            each for each in await asyncio.gather(*answered, return_exceptions=True) if isinstance(each, Exception)
        )


async def hanging(task: Task) -> None:
    await asyncio.sleep(3600)


async def staying(task: Task) -> None:
    """An agent that stays after the conversation has ended."""
    await native(task)
    await asyncio.sleep(3600)


async def flooding(task: Task) -> None:
    async with client_of(task) as client:
        while True:
            await client.models.list()
