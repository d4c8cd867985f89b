"""An endpoint's answer becomes a reply, a fault, or one sentence."""

import asyncio
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import httpx
import pytest

from seal.rollout.dialogue import Dialogue
from shelf.suites.answers import ContextExceeded, EndpointFault, EndpointRefused, RequestRefused
from shelf.suites.benchmark import EndpointSpeaker
from shelf.suites.endpoint import LEFT_OUT, ChatClient, Endpoint, Sampling, without_proxy
from tests.support.loopback import Loopback


def answer(finish="stop", **message):
    return json.dumps({"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish}]})


@contextmanager
def answering(answers):
    """An HTTP server that gives these (status, text), in turn or by body; its address and the requests that it got."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            got.append((dict(self.headers), body))
            status, text = answers(body) if callable(answers) else answers[min(len(got), len(answers)) - 1]
            self.send_response(status)
            kind = "text/event-stream" if text.startswith(("data:", ":", "event:")) else "application/json"
            for name, value in (("content-type", kind), ("retry-after-ms", "10")):
                self.send_header(name, value)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with Loopback(Handler) as server:
        yield f"{server.url}/v1", got


USER = {"role": "user", "content": "hi"}
TOOLS = {"tools": [{"type": "function", "function": {"name": "ls"}}]}
LS = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


async def ask(url, asked=None, messages=(USER,), **options):
    client = ChatClient(Endpoint(url, "m"), **options)
    try:
        return await client.complete(messages, Sampling(0.5, 0.9, 64), 7, "task/0/1", **(asked or {}))
    finally:
        await client.close()


def reply_to(*answers, **options):
    with answering([each if isinstance(each, tuple) else (200, each) for each in answers]) as (url, _):
        return asyncio.run(ask(url, **options))


def test_a_completion_is_read():
    reply = reply_to(answer(content="hello"))
    assert (reply.text, reply.truncated, reply.tokens) == ("hello", False, 0)
    assert reply_to(answer("length", content="hel")).truncated
    assert reply_to(answer(content=None)).text == ""


def test_a_request_carries_what_the_recipe_samples_with_and_the_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with answering([(200, answer(content="a"))]) as (url, got):
        asyncio.run(ask(url))
    headers, body = got[0]
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 64,
        "seed": 7,
    }
    named = {name.lower(): value for name, value in headers.items()}
    assert (named["authorization"], named["x-request-id"]) == ("Bearer secret", "task/0/1")


def test_a_seed_is_one_that_providers_accept():
    async def seeded(url):
        client = ChatClient(Endpoint(url, "m"))
        for seed in (2**31 - 1, 2**31, 2**32 - 1):
            await client.complete([USER], Sampling(), seed, "task/0/1")
        await client.close()

    with answering([(200, answer(content="a"))]) as (url, got):
        asyncio.run(seeded(url))
    assert [body["seed"] for _, body in got] == [2**31 - 1, 0, 2**31 - 1]


@pytest.mark.parametrize("count", ["12", None, -1, True, [3], "\ud800"], ids=str)
def test_a_count_of_tokens_that_is_none_loses_no_answer(count):
    said = {**json.loads(answer(content="hello")), "usage": {"completion_tokens": count, "prompt_tokens": 3}}
    reply, bare = reply_to(json.dumps(said)), reply_to(json.dumps({**said, "usage": "none"}))
    assert (reply.text, reply.tokens, reply.prompt_tokens) == ("hello", 0, 3)
    assert (bare.text, bare.tokens) == ("hello", 0)


@pytest.mark.parametrize("error", [None, "", {}, "none", {"code": 0, "message": ""}, {"message": None}], ids=str)
def test_a_field_for_an_error_that_holds_none_loses_no_answer(error):
    assert reply_to(json.dumps({**json.loads(answer(content="hello")), "error": error})).text == "hello"


def test_half_a_surrogate_pair_can_be_logged():
    text = reply_to('{"choices":[{"message":{"content":"a\\ud83d"},"finish_reason":"stop"}]}').text
    assert text.encode("utf-8") == b"a?"


@pytest.mark.parametrize("status", [200, 400])
def test_half_a_surrogate_pair_in_an_error_can_be_logged(status):
    with pytest.raises(RequestRefused) as refused:  # an error may repeat the first characters of a message
        reply_to((status, '{"error": {"message": "This text is flagged: a\\ud83d"}}'), answer(content="Hello!"))
    assert str(refused.value).encode("utf-8").endswith(b"a?")
    with pytest.raises(EndpointFault) as fault:
        reply_to((200, '{"error": {"message": "cannot read a\\ud83d"}}'))
    assert b"cannot read a?" in str(fault.value).encode("utf-8")


def test_an_endpoint_that_parses_tool_calls_is_refused():
    with pytest.raises(EndpointRefused, match="without a tool-call parser, or read its calls with --prompt-mode"):
        reply_to(answer(content=None, tool_calls=[{"id": "1"}]))


@pytest.mark.parametrize(
    "text",
    [
        *("", "<html>", "[]", "{}", '{"choices": []}', '{"choices": {"message": {}}}', '{"choices": [{"message": 3}]}'),
        '{"choices": [{"message": {"content": 3}, "finish_reason": "content_filter"}]}',
    ],
)
def test_anything_else_is_a_fault_of_the_endpoint(text):
    with pytest.raises(EndpointFault, match="no chat completion"):
        reply_to(text)


@pytest.mark.parametrize("thoughts", ["reasoning_content", "reasoning", "thinking"])
def test_an_answer_that_a_parser_left_in_the_thoughts_is_a_fault_with_its_fix(thoughts):
    with pytest.raises(EndpointFault, match="without a reasoning parser") as fault:
        reply_to(answer(content=None, **{thoughts: "Hm. <tool_call>\n{}\n</tool_call>"}))
    assert fault.value.cause == "endpoint_reasoning"
    assert reply_to(answer("length", content=None, **{thoughts: "Hm."})).truncated  # the policy's own budget
    assert reply_to(answer(content="Done.", **{thoughts: "Hm."})).text == "Done."


@pytest.mark.parametrize(
    "thoughts",
    [
        "<\uff5ctool▁calls▁begin\uff5c>function<\uff5ctool▁sep\uff5c>cd",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.cd:0",
        '[TOOL_CALLS]cd[ARGS]{"folder": "a"}',
        '<function_calls>\n<invoke name="cd">',
        '<minimax:tool_call><invoke name="cd">',
        '<|channel|>commentary to=functions.cd <|message|>{"folder": "a"}',
        '{"name": "cd", "parameters": {}}',
        "[cd(folder='a')]",
        [{"type": "reasoning.text", "text": '{"name": "cd", "arguments": {}}'}],
    ],
    ids=str,
)
def test_calls_of_many_formats_are_found_in_the_thoughts(thoughts):
    asked = {"tools": [{"type": "function", "function": {"name": "cd"}}]}
    with pytest.raises(EndpointFault, match="without a reasoning parser"):
        reply_to(answer(content=None, reasoning_details=thoughts), asked=asked)
    prose = "I call functions: a tool call of cd(folder), then [a, b] where a < b."
    assert reply_to(answer(content=None, reasoning=prose), asked=asked).text == ""  # the model's, as officially


def test_an_answer_in_parts_is_read_and_one_of_thoughts_alone_is_a_fault():
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    assert reply_to(answer(content=[thinking, {"type": "text", "text": "Done."}])).text == "Done."
    with pytest.raises(EndpointFault, match="Hm"):
        reply_to(answer(content=[thinking]))


@pytest.mark.parametrize("reason", ["error", "abort", "network_error", "insufficient_system_resource"])
@pytest.mark.parametrize("text", ["", "half an ans"])
def test_an_answer_that_the_endpoint_broke_off_is_its_fault(reason, text):
    with pytest.raises(EndpointFault, match=reason) as fault:
        reply_to(answer(reason, content=text))
    assert fault.value.cause == "endpoint_error"


def choices(*messages, finish="tool_calls"):
    return json.dumps(
        {"choices": [{"index": n, "message": m, "finish_reason": finish} for n, m in enumerate(messages)]}
    )


SAID, MADE = {"content": "I will look."}, {"content": None, "tool_calls": [LS]}
OTHER = {"content": None, "tool_calls": [{**LS, "id": "call_2"}]}


@pytest.mark.parametrize(
    ("given", "text", "names"),
    [
        (choices(SAID, MADE), "I will look.", ["ls"]),
        (choices(MADE, SAID), "I will look.", ["ls"]),
        (choices(MADE, OTHER), "", ["ls", "ls"]),
        (choices(SAID, {"content": "Or not."}, finish="stop"), "I will look.", []),
        (answer("function_call", **SAID, function_call=LS["function"]), "I will look.", ["ls"]),
        (answer("stop", content=None, function_call=LS["function"]), "", ["ls"]),
        (answer("malformed_function_call", content="I look."), "I look.", []),
        (answer("stop", **SAID, function_call={"name": "", "arguments": ""}), "I will look.", []),
    ],
)
def test_the_calls_of_a_message_are_read_wherever_it_has_them(given, text, names):
    reply = reply_to(given, asked=TOOLS)
    assert (reply.text, [call["function"]["name"] for call in reply.calls]) == (text, names)


@pytest.mark.parametrize(
    "given",
    [
        *(answer(reason, **SAID) for reason in ("tool_calls", "TOOL_CALLS", "function_call", "tool_use", "tool_call")),
        answer("stop", **SAID, tool_call=LS),
        answer("stop", content=[{"type": "tool_use", "name": "ls", "input": {}}]),
        choices(MADE | SAID, OTHER | SAID),
        choices(MADE, MADE),
    ],
)
@pytest.mark.parametrize("asked", [TOOLS, {}], ids=["tools", "text"])
def test_calls_that_were_lost_on_their_way_are_the_endpoint_s_fault(given, asked):
    with pytest.raises(EndpointFault) as fault:
        reply_to(given, asked=asked)
    assert fault.value.cause == "endpoint_error"


CHUNK = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def stream(*deltas, finish="stop"):
    ends = [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}] * bool(finish)
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    parts = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas] + ends + [{"choices": [], "usage": usage}]
    return "".join(f"data: {json.dumps(CHUNK | part)}\n\n" for part in parts) + "data: [DONE]\n\n"


CALLED = (
    {"role": "assistant", "content": "I ", "reasoning_content": "Hm"},
    {"content": "look.", "reasoning_content": "."},
    {"tool_calls": [{"index": 0, **LS, "function": {"name": "ls", "arguments": "{"}}]},
    {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
)


@pytest.mark.parametrize(
    "said",
    [
        "This model only supports stream mode: set the stream parameter.",
        "This model only support stream mode, please enable the stream parameter to access the model.",
        "parameter.enable_thinking must be set to false for non-streaming calls",
        "Stream must be set to true",
    ],
)
def test_an_endpoint_that_only_streams_is_asked_for_streams(said):
    async def twice(url):
        client = ChatClient(Endpoint(url, "m"))
        replies = [await client.complete([USER], Sampling(), 7, f"task/0/{n}", **TOOLS) for n in range(2)]
        await client.close()
        return replies

    refused = (400, json.dumps({"error": {"code": "invalid_parameter_error", "message": said}}))
    kept = [(200, f"{line}{stream(*CALLED)}") for line in ("", ": processing\n\n", "event: chunk\n")]
    for first in (refused, *kept):  # some stream whatever they are asked for
        with answering([first, (200, stream(*CALLED))]) as (url, got):
            replies = asyncio.run(twice(url))
        assert [body.get("stream") for _, body in got] == [None, True, True]
        for reply in replies:
            assert (reply.text, reply.tokens, reply.thoughts) == ("I look.", 7, {"reasoning_content": "Hm."})
            assert [call["function"] for call in reply.calls] == [LS["function"]]


def test_two_calls_of_a_stream_with_one_index_stay_two():
    pwd = {**LS, "id": "call_2", "function": {"name": "pwd", "arguments": "{}"}}
    given = stream({"content": ""}, {"tool_calls": [{"index": 0, **LS}]}, {"tool_calls": [{"index": 0, **pwd}]})
    reply = reply_to(given, asked=TOOLS)
    assert [call["function"] for call in reply.calls] == [LS["function"], pwd["function"]]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (stream({"content": "half"}, finish=None), "endpoint_error"),
        (f"data: {json.dumps({'error': {'message': 'no capacity'}})}\n\n", "endpoint_error"),
        ("data: {\n\n", "endpoint_protocol"),
        ("data: 3\n\n", "endpoint_protocol"),
        ("data: [DONE]\n\n", "endpoint_error"),
        (stream({"tool_calls": [LS]}, {"tool_calls": [LS]}), "endpoint_protocol"),
        (stream({"content": {"a": 1}}, {"content": "a"}), "endpoint_protocol"),
    ],
)
def test_a_stream_that_ends_early_or_is_none_is_the_endpoint_s_fault(text, cause):
    with pytest.raises(EndpointFault) as fault:
        reply_to(stream({}), text, asked=TOOLS)
    assert fault.value.cause == cause


@pytest.mark.parametrize(
    "said",
    [
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        "Missing `reasoning_content` field in the assistant message at message index 1",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
    ],
)
def test_thoughts_go_back_to_an_endpoint_that_wants_them_and_to_no_other(said):
    history = [
        USER,
        {"role": "assistant", **MADE},
        {"role": "tool", "content": "a"},
        {"role": "assistant", **MADE},
        USER,
    ]
    asked = {**TOOLS, "thoughts": [{"reasoning_content": "Hm."}, {}]}
    refused = (400, json.dumps({"error": {"message": said, "type": "invalid_request_error"}}))
    with answering([refused, (200, answer(content="Done."))]) as (url, got):
        assert asyncio.run(ask(url, asked, history)).text == "Done."
    assert [[m.get("reasoning_content") for m in body["messages"]] for _, body in got] == [
        [None] * 5,
        [None, "Hm.", None, "", None],
    ]


def test_the_query_of_an_address_stands_behind_each_path(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    asked = []

    class Azure(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["api-key"]))
            said = answer(content="hello").encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_):
            pass

    with Loopback(Azure) as server:
        for end in ("", "/"):
            url = f"{server.url}/openai/deployments/m{end}?api-version=2024-10-21"
            assert Endpoint(url, "m").takes_fixed() is False
            assert asyncio.run(ask(url)).text == "hello"
            with pytest.raises(EndpointRefused, match="query"):
                Endpoint(url, "m", lists_models=True).require()
    paths = [f"/openai/deployments/m/{name}?api-version=2024-10-21" for name in ("models", "chat/completions")]
    assert asked == [(path, "secret") for path in paths * 2]


@pytest.mark.parametrize("status", [429, 503])
def test_an_endpoint_that_comes_back_within_the_wait_answers(status):
    down = (status, "{}")
    assert reply_to(down, down, answer(content="up"), attempts=1, wait_s=60).text == "up"


def test_an_endpoint_that_stays_away_is_waited_for_once():
    async def twice(url):
        client = ChatClient(Endpoint(url, "m"), attempts=1, wait_s=0.1)
        for name in ("task/0/1", "task/0/2"):
            with pytest.raises(EndpointFault) as fault:
                await client.complete([USER], Sampling(), 7, name)
            yield fault.value.cause, len(got)
        await client.close()

    async def seen(url):
        return [each async for each in twice(url)]

    with answering([(503, "{}")]) as (url, got):
        (cause, asked), second = asyncio.run(seen(url))
    assert cause == "endpoint_503" and asked > 1
    assert second == (cause, asked)


def test_an_endpoint_that_fails_for_one_request_alone_is_not_gone():
    def by_body(body):
        return (500, "{}") if "boom" in body["messages"][0]["content"] else (200, answer(content="up"))

    async def both(url):
        client = ChatClient(Endpoint(url, "m"), attempts=1, wait_s=0.1)
        with pytest.raises(EndpointFault):
            await client.complete([{"role": "user", "content": "boom"}], Sampling(), 7, "task/0/1")
        reply = await client.complete([USER], Sampling(), 7, "task/0/2")
        await client.close()
        return reply.text

    with answering(by_body) as (url, _):
        assert asyncio.run(both(url)) == "up"


def test_an_error_inside_a_completion_is_judged_as_one_outside():
    faulty = json.loads(answer("error", content=""))
    faulty["choices"][0]["error"] = {"code": 502, "message": "Upstream idle timeout"}
    with pytest.raises(EndpointFault, match="Upstream idle timeout"):
        reply_to(json.dumps(faulty))
    with pytest.raises(EndpointFault, match="no capacity"):
        reply_to('{"error": {"code": 503, "message": "no capacity"}}')
    with pytest.raises(RequestRefused):
        reply_to('{"error": {"code": 403, "message": "Your input was flagged"}}')


@pytest.mark.parametrize(
    "refused",
    [
        answer(content=None, refusal="I cannot help with that."),
        answer(content=[{"type": "refusal", "refusal": "No."}]),
        answer("content_filter", content=""),
        answer("SAFETY", content="half"),
        answer("sensitive", content=None),
        (400, "<400> InternalError.Algo.DataInspectionFailed: Input text data may contain inappropriate content."),
        (400, '{"error": {"code": "content_filter", "message": "... Azure OpenAI\'s content management policy"}}'),
        (403, "openai/gpt requires moderation. Your input was flagged for violence"),
        (451, "censorship_blocked: The content you provided is blocked"),
        (400, "The request was rejected because it was considered high risk"),
        (400, "Content Exists Risk"),
        (400, "The request failed because of SensitiveContentDetected"),
        (400, "Request blocked by guardrail"),
    ],
)
def test_a_refusal_of_the_model_or_of_a_filter_is_no_fault_and_is_of_one_request(refused):
    with pytest.raises(RequestRefused):
        reply_to(refused, answer(content="Hello!"))


@pytest.mark.parametrize(
    "said",
    ["Your access was terminated due to violation of our policies.", "<html>Blocked: violates the usage policy</html>"],
)
def test_what_refuses_every_request_in_a_filter_s_words_is_no_refusal_of_this_one(said):
    async def both(url):
        client = ChatClient(Endpoint(url, "m"))
        await client.complete([USER], Sampling(), 7, "task/0/1")
        with pytest.raises(EndpointFault) as fault:
            await client.complete([USER], Sampling(), 7, "task/0/2")
        await client.close()
        return fault.value.cause

    with answering([(200, answer(content="up")), (403, said)]) as (url, _):
        assert asyncio.run(both(url)) == "endpoint_403"
    with pytest.raises(EndpointRefused):
        reply_to((403, said))


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "maximum context length is 100 tokens"),
        (400, "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it"),
        (500, "Context size has been exceeded."),
        (400, "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"),
        (400, "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
        (400, "The input (9000 tokens) is longer than the model's context length (8192 tokens)."),
        (422, "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000"),
        (400, "prompt is too long: 209153 tokens > 200000 maximum"),
        (400, "The input token count (200000) exceeds the maximum number of tokens allowed (131072)."),
        (400, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
        (413, "Please reduce the length of the messages or completion."),
        (400, "too many tokens: size limit exceeded by 123 tokens."),
        (400, "Your request exceeded model token limit: 8192"),
        (400, "Prompt exceeds max length"),
        (400, "Input is too long for requested model."),
        (400, "the input length exceeds the context length"),
        (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
        (400, "invalid params, context window exceeds limit (2013)"),
        (422, "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens"),
        (400, "the input token count is 32769 but model only supports up to 32768."),
        (400, "Too many input tokens. Max input tokens: 8192, request input token count: 9000"),
        (413, "Request body too large for gpt-4o model. Max size: 8000 tokens."),
        (400, "Total tokens of image and text exceed max message tokens"),
    ],
)
def test_a_dialogue_beyond_the_context_is_told_apart_in_the_words_of_many(status, text):
    with pytest.raises(ContextExceeded):
        reply_to((status, json.dumps({"error": {"message": text}})), attempts=1)


def test_a_dialogue_beyond_the_context_is_noted_in_the_endpoint_s_words():
    async def say(url):
        client, dialogue = ChatClient(Endpoint(url, "m")), Dialogue()
        said = await EndpointSpeaker(client, Sampling(), "task/0", 0).say(dialogue)
        await client.close()
        return said, dialogue.note

    with answering([(400, "maximum context length is 100 tokens")]) as (url, _):
        assert asyncio.run(say(url)) == (("", True), "maximum context length is 100 tokens")


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (500, "Request timed out: deadline exceeded"),
        (502, "rpc error: context deadline exceeded"),
        (429, "token limit per minute exceeded"),
        (413, "Request too large on tokens per minute (TPM): Limit 6000, Requested 7000"),
        (500, "CUDA error"),
        (413, "<html><head><title>413 Request Entity Too Large</title></head><hr>nginx/1.24.0</html>"),
        (413, "Payload Too Large"),
        (413, "Request exceeds the maximum allowed number of bytes"),
        (400, "Request body exceeds the limit of 1 MB"),
        (500, "Total GPU memory exceeded"),
        (503, "Total number of queued requests exceeded"),
        (502, "upstream context canceled: buffer size exceeded"),
    ],
)
def test_limits_of_time_of_rate_and_of_a_server_are_no_context(status, text):
    with pytest.raises(EndpointFault, match=text[:10]):
        reply_to((status, json.dumps({"error": {"message": text}})), answer(content="Hello!"), attempts=1)


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Invalid 'tools[0].function.name': string too long. Expected at most 64."},
        {"message": "Invalid 'messages[2].tool_calls[0].id': string too long. Expected at most 40."},
        {"message": "Request violates the JSON schema of tools"},
        {"message": "parameter names are case-insensitive"},
        {"message": "safety_identifier: unknown"},
        {
            "detail": [
                {"msg": "a list is expected", "input": "flagged as unsafe content, the context length is exceeded"}
            ]
        },
    ],
    ids=str,
)
def test_what_is_wrong_with_every_request_is_neither_a_refusal_nor_too_long(error):
    with pytest.raises(EndpointRefused, match="refused the request with 400"):
        reply_to((400, json.dumps({"error": error})))


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("temperature", '{"error": {"param": "temperature", "code": "unsupported_value"}}'),
        ("seed", '{"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs"}]}'),
        ("seed", "Invalid JSON payload received. Unknown name 'seed': Cannot find field."),
        ("top_p", "`temperature` and `top_p` cannot both be specified for this model."),
        ("top_p", "Argument not supported: topP"),
        ("max_tokens", "Range of max_tokens should be [1, 32]"),
        ("max_tokens", "it has a maxOutputTokens value of 100000 but the supported range is from 1 to 65537"),
        ("max_tokens", '{"error": {"message": "max_tokens is too large: 4096.", "param": "max_tokens"}}'),
        ("max_tokens", '{"error": {"message": "The maximum tokens you requested exceeds the model limit of 2048."}}'),
        ("temperature", '{"error": {"message": "not supported", "param": "generation_config.temperature"}}'),
        ("seed", '{"error": {"message": "openai does not support parameters: [\'seed\']", "param": "None"}}'),
    ],
)
def test_a_field_that_a_model_does_not_take_is_left_out_once_for_all(field, said):
    async def twice(url):
        client = ChatClient(Endpoint(url, "m"))
        for name in ("task/0/1", "task/0/2"):
            await client.complete([{"role": "user", "content": "hi"}], Sampling(0.5, 0.9, 64), 7, name)
        await client.close()
        return client.replaced

    with answering([(400, said), (200, answer(content="hello"))]) as (url, got):
        assert asyncio.run(twice(url)) == {field: LEFT_OUT}
    assert [field in body for _, body in got] == [True, False, False]


def test_a_model_s_other_name_for_the_limit_is_used():
    said = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    refused = (400, json.dumps({"error": {"message": said, "param": "max_tokens"}}))
    again = (400, json.dumps({"error": {"message": "Unsupported", "param": "max_completion_tokens"}}))
    with answering([refused, (200, answer(content="hello"))]) as (url, got):
        asyncio.run(ask(url))
    assert got[1][1]["max_completion_tokens"] == 64 and "max_tokens" not in got[1][1]
    with answering([refused, again, (200, answer(content="hello"))]) as (url, got):
        assert asyncio.run(ask(url)).text == "hello"


def test_a_refusal_that_no_list_knows_is_of_one_request_if_the_endpoint_answers_others():
    odd = (422, '{"error": {"message": "no"}}')
    with pytest.raises(EndpointFault) as fault:
        reply_to(odd, answer(content="Hello!"))
    assert fault.value.cause == "endpoint_422"
    with pytest.raises(EndpointRefused):
        reply_to(odd)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503])
def test_overload_is_retried_within_the_attempts(status):
    overloaded = (status, "{}")
    assert reply_to(overloaded, overloaded, answer(content="late"), attempts=3).text == "late"
    with pytest.raises(EndpointFault) as fault:
        reply_to(overloaded, attempts=2)
    assert fault.value.cause == f"endpoint_{status}"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_retry_fixes_is_refused_at_once(status):
    with answering([(status, '{"error": {"message": "no"}}')]) as (url, got):
        with pytest.raises(EndpointRefused, match=f"refused the request with {status}"):
            asyncio.run(ask(url))
        assert len(got) == 1


@pytest.mark.parametrize("status", [400, 200])  # a gateway may wrap the error
def test_a_message_limit_beyond_the_context_of_a_small_model_is_left_out(status):
    refusal = (status, '{"error": {"message": "max_tokens=4096 cannot be greater than max_model_len=2048."}}')
    with answering([refusal, (200, answer(content="hello"))]) as (url, got):
        assert asyncio.run(ask(url)).text == "hello"
    assert ["max_tokens" in body for _, body in got] == [True, False]


def test_an_endpoint_that_is_gone_is_unreachable():
    with answering([]) as (url, _):
        pass
    with pytest.raises(EndpointFault) as fault:
        asyncio.run(ask(url, attempts=1))
    assert fault.value.cause == "endpoint_unreachable"


def test_a_password_in_the_address_is_in_no_message():
    with answering([(500, "no")]) as (url, _):
        hidden = url.replace("//", "//me:hunter2@")
        with pytest.raises(EndpointFault) as fault:
            asyncio.run(ask(hidden, attempts=1))
    with pytest.raises(EndpointFault) as gone:
        asyncio.run(ask(hidden, attempts=1))
    assert url in str(fault.value) and url in str(gone.value) and "hunter2" not in f"{fault.value}{gone.value}"


def test_an_address_with_a_port_that_is_none_is_one_sentence():
    with pytest.raises(EndpointRefused, match="fix --base-url"):
        Endpoint("http://127.0.0.1:80O0/v1", "m").require()


def use_proxies(monkeypatch, **variables):
    for name in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv(name, variables.get(name, ""))


ODD_PROXIES = [
    {"ALL_PROXY": "socks5://127.0.0.1:9"},
    {"ALL_PROXY": "socks://127.0.0.1:9"},
    {"HTTP_PROXY": "http://[::1"},
    {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "localhost,[::1]"},
    {"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "fe80::/10,10.0.0.0/8"},
]


@pytest.mark.parametrize("variables", ODD_PROXIES, ids=str)
def test_no_proxy_of_the_environment_is_a_traceback_and_none_is_asked_for_this_machine(variables, monkeypatch):
    use_proxies(monkeypatch, **variables)
    assert reply_to(answer(content="hello")).text == "hello"
    with answering([(200, "{}")]) as (url, _):
        assert Endpoint(url, "m").takes_fixed() is False
    with pytest.raises(EndpointRefused):
        Endpoint("http://example.invalid/v1", "m").require()


def test_of_an_endpoint_s_many_models_the_nearest_is_named_unless_it_answers_all_the_same():
    models = json.dumps({"data": [{"id": f"vendor/model-{number}"} for number in range(420)]})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(models.encode())

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.send_response({"deployed": 200, "busy": 429}.get(asked["model"], 404))
            self.end_headers()

        def log_message(self, *_):
            pass

    with Loopback(Handler) as server:
        with pytest.raises(EndpointRefused, match=r"and 408 more, not vendor/modell-7; did you mean vendor/model-7\?$"):
            Endpoint(f"{server.url}/v1", "vendor/modell-7").require()
        deployed = Endpoint(f"{server.url}/v1", "deployed")
        deployed.require()
        Endpoint(f"{server.url}/v1", "busy").require()  # that it is overloaded says nothing about the name
        assert not deployed.takes_fixed()


def test_a_distant_endpoint_is_waited_for_through_the_proxy(monkeypatch):
    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(401)
            self.end_headers()

        def log_message(self, *_):
            pass

    with Loopback(Proxy) as server:
        use_proxies(monkeypatch, HTTP_PROXY=server.url)
        assert Endpoint("http://example.invalid/v1", "m").answers_within(0.1)


def test_a_tool_s_client_reads_what_it_is_told_of_proxies(monkeypatch):
    use_proxies(monkeypatch, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY="[::1],fe80::/10, 10.0.0.0/8,intern.example")
    told = without_proxy("http://[::1]:8000/v1", "http://127.0.0.1:8000/v1", "http://example.invalid/v1")
    assert told["NO_PROXY"] == told["no_proxy"] == "10.0.0.0/8,127.0.0.1,::1,intern.example"
    use_proxies(monkeypatch, HTTP_PROXY="http://127.0.0.1:9", NO_PROXY=told["NO_PROXY"])
    httpx.Client().close()
