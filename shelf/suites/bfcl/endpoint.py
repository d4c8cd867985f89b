"""An OpenAI-compatible chat endpoint, as an evaluation sees it.

Plain chat completions: the benchmark's own prompt travels as messages, tools
are never passed as such, so the endpoint must not parse tool calls itself.
"""

from collections.abc import Mapping, Sequence

from shelf.suites.chat import ChatClient, Reply, Sampling


class ChatEndpoint:
    """Asynchronous client of one model behind ``base_url`` (``http://host:port/v1``); uses no proxy."""

    def __init__(self, base_url: str, model: str, sampling: Sampling, timeout_s: float = 600.0, attempts: int = 6):
        self._sampling = sampling
        self._client = ChatClient(base_url, model, timeout_s, attempts)

    async def complete(self, messages: Sequence[Mapping[str, str]], seed: int, request_id: str) -> Reply:
        """The next assistant message, of min(max_tokens, what the context leaves) tokens.

        Raises ContextExceeded if the dialogue is too long, EndpointFault if no
        attempt succeeds, EndpointRefused if the endpoint would refuse every request.
        """
        return await self._client.complete(messages, self._sampling, seed, request_id)

    async def check(self) -> None:
        """EndpointRefused if nothing answers at the address, or a list of models lacks ours."""
        await self._client.check()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
