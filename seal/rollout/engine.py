"""The policy in the rollout engine as a speaker: tokens in and tokens out.

A run trains on exactly what it sampled: assistant tokens and their log-probs come from the engine and are never rebuilt
from text.
"""

import asyncio
import zlib
from typing import Any
from uuid import uuid4

from ray.exceptions import RayError, TaskCancelledError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from env_service.environments.kit.tool_calls import NATIVE
from seal.rollout.budgets import Budgets
from seal.rollout.dialogue import Dialogue
from seal.rollout.native import NativeFormat
from seal.rollout.row import Row
from seal.rollout.speaker import Said, SpeakerFault
from seal.rollout.stream import TokenSpeaker, TokenStream
from seal.rollout.token_path import Sampled
from seal.settings import SealSettings
from seal.system.text import last_line


class EngineSpeaker(TokenSpeaker):
    """The policy of one dialogue. stream: its tokens. tokens_in: the prompt tokens of all its requests."""

    name = "the rollout engine"

    def __init__(
        self,
        loop: AgentLoopBase,
        settings: SealSettings,
        budgets: Budgets,
        row: Row,
        sampling_params: dict[str, Any],
        attempt: int | str,
    ):
        self._loop = loop
        self._timeout_s = settings.rollout.generation_timeout_s
        self._max_steps = budgets.max_steps if row.trains else None
        self._sampling_params = sampling_params
        self._seed = f"{settings.seed}/{row.place}/{attempt}"
        self._request_id = uuid4().hex  # the same for all messages, so that one server holds the prefix
        native = NativeFormat(loop.rollout_config.multi_turn.format, loop.tokenizer)
        self.stream = TokenStream(loop, budgets, row.trains, native if row.prompt_mode == NATIVE else None)
        self.tokens_in = 0

    async def say(self, dialogue: Dialogue, most: int | None = None) -> Said | None:
        """Take in what the environment said, and sample the next message unless a budget is used up.

        most: the limit of the message in tokens, if it is lower than what the budgets leave.
        """
        room = await self.stream.hear(dialogue)
        message, stops = len(self.stream.sampled), self.stream.stops
        self.limit = self.stream.limit
        if room < 1:
            return None
        if self._max_steps is not None and message >= self._max_steps:
            self.limit = "max_steps"
            return None
        room = min(room, most or room)
        seed = zlib.crc32(f"{self._seed}/{message}".encode())
        own = {"max_tokens": room, "stop_token_ids": sorted(stops), "seed": seed}
        sampled = await self._sample(self._sampling_params | own)
        await self.stream.append(dialogue.turn, sampled)
        # A message shorter than its room ended with a stop token: one of ours or another one of the model.
        cut = sampled.ids[-1] not in stops and len(sampled.ids) >= room
        return Said(await self.stream.text(sampled.ids, cut), cut)

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        return self.stream.facts() | {"tokens_in": self.tokens_in}

    async def _sample(self, params: dict[str, Any]) -> Sampled:
        """Sample the next message.

        Raises SpeakerFault (engine, engine_timeout, engine_cancelled, engine_aborted) when the engine
        fails, hangs beyond the timeout, or cancels or aborts the request.
        """
        ids, message = self.stream.ids, len(self.stream.sampled) + 1
        self.tokens_in += len(ids)
        engine, asked = self._loop.server_manager, {"prompt_ids": ids, "sampling_params": params}
        try:
            async with asyncio.timeout(self._timeout_s):
                output = await engine.generate(request_id=self._request_id, **asked)
        except TimeoutError as error:
            raise SpeakerFault(
                "engine_timeout",
                f"the trajectory waited for the rollout engine: message {message}, after {len(ids)} tokens, did "
                f"not come within seal.rollout.generation_timeout_s={self._timeout_s:g}",
            ) from error
        except (asyncio.CancelledError, TaskCancelledError) as error:
            if asyncio.current_task().cancelling():
                raise  # this trajectory itself is being cancelled
            raise SpeakerFault("engine_cancelled", f"the request for message {message} was cancelled") from error
        except RayError as error:
            raise SpeakerFault(
                "engine", f"the rollout engine failed at message {message}: {last_line(str(error))}"
            ) from error
        if output.stop_reason in ("abort", "aborted") or not output.token_ids:
            raise SpeakerFault("engine_aborted", f"the rollout engine aborted the request for message {message}")
        logprobs = (output.log_probs or []) if params.get("logprobs") else [0.0] * len(output.token_ids)
        versions = (output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        self.stream.versions += [int(version or 0) for version in versions]
        return Sampled(tuple(output.token_ids), tuple(logprobs))
