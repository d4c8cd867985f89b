"""The policy in the rollout engine as a speaker: tokens in and tokens out.

A run trains on exactly what it sampled: assistant tokens and their log-probs come from the engine and are never rebuilt
from text; verl's continuous-token builder appends the environment's messages, masked; `token_path` checks every
trajectory for this.
"""

import asyncio
import zlib
from collections.abc import Awaitable
from typing import Any, TypeVar
from uuid import uuid4

from jinja2.exceptions import TemplateError
from ray.exceptions import RayError, TaskCancelledError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from seal.rollout.budgets import Budgets
from seal.rollout.dialogue import Dialogue
from seal.rollout.row import Row
from seal.rollout.speaker import Said, Speaker, SpeakerFault
from seal.rollout.token_path import Sampled, TokenPathError, check
from seal.settings import SealSettings
from seal.system.text import last_line

Result = TypeVar("Result")


class EngineSpeaker(Speaker):
    """The growing token stream of one trajectory.

    ids: prompt and response. prompt_length: tokens of the first prompt. mask: 1 for a sampled token, 0 for context, per
    response token; logprobs: natural logarithms, 0 for context, per response token. spans: (turn, start, end) of each
    sampled message in response tokens. versions: the engine's weights per sampled message. tokens_in: of the prompts of
    all requests. length: of prompt and response in tokens, when it was last compared with the budgets.
    most: tokens of the next message, if it may have fewer than the budgets leave.
    """

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
        self.made_of = loop, settings, budgets, row, sampling_params, attempt
        self._loop = loop
        self._settings = settings
        self._budgets = budgets
        self._training = row.training and row.withdrawal is None  # a withdrawal has a validation's budgets
        self._sampling_params = sampling_params
        self._seed = f"{settings.seed}/{row.place}/{attempt}"
        self._request_id = uuid4().hex  # one for all messages, so that the same server holds the prefix
        self._eos = loop.tokenizer.eos_token_id
        self._heard = 0  # how many messages of the dialogue are in the tokens
        self.ids: list[int] = []
        self.prompt_length = 0
        self.mask: list[int] = []
        self.logprobs: list[float] = []
        self.spans: list[tuple[int, int, int]] = []
        self.sampled: list[Sampled] = []
        self.versions: list[int] = []
        self.tokens_in = 0
        self.length = 0
        self.most: int | None = None

    @property
    def told(self) -> "EngineSpeaker":
        """Whose tokens are trained."""
        return self

    @property
    def response(self) -> list[int]:
        """The tokens after the first prompt."""
        return self.ids[self.prompt_length :]

    async def say(self, dialogue: Dialogue) -> Said | None:
        """Take in what the environment said, and sample the next message unless a budget is used up."""
        room = await self._room_after_hearing(dialogue)
        if room < 1:
            return None
        message = len(self.sampled)
        if self._training and message >= self._budgets.max_steps:
            self.limit = "max_steps"
            return None
        room = min(room, self.most or room)
        ids = await self._sample(
            dialogue.turn,
            {
                **self._sampling_params,
                "max_tokens": room,
                "stop_token_ids": [self._eos],
                "seed": zlib.crc32(f"{self._seed}/{message}".encode()),
            },
        )
        # A message shorter than its room ended with a stop token: eos or another one of the model.
        return self._said(ids, ids[-1] != self._eos and len(ids) >= room)

    async def ended(self, dialogue: Dialogue) -> None:
        """TokenPathError unless the response is what was sampled."""
        spans = [(start, end) for _, start, end in self.spans]
        check(self.response, self.mask, self.logprobs, spans, self.sampled)

    def facts(self, dialogue: Dialogue) -> dict[str, Any]:
        return {
            "tokens": sum(self.mask),
            "tokens_in": self.tokens_in,
            "prompt_tokens": self.prompt_length,
            "length": self.length,
            "weights": (min(self.versions), max(self.versions)) if self._training and self.versions else None,
        }

    async def _room_after_hearing(self, dialogue: Dialogue) -> int:
        """The tokens that the next message may have; what the environment said is appended if any are left."""
        if not self.ids:
            self.ids = await _on_token_path(self._loop.ct_build_initial_tokens(dialogue.messages))
            self.prompt_length = len(self.ids)
            stream = self.ids, self.mask, self.logprobs
        else:
            if dialogue.truncated and dialogue.truncated[-1] == len(self.sampled) - 1:
                # In validation, as officially, a cut message is closed and the dialogue goes on.
                self.ids, self.mask = [*self.ids, self._eos], [*self.mask, 0]
                self.logprobs = [*self.logprobs, 0.0]
            previous = dialogue.messages[: self._heard + 1]  # with the message that was sampled last
            merged, mask, logprobs = await _on_token_path(
                self._loop.ct_merge_context_msg(previous, dialogue.messages, self.ids, self.mask, self.logprobs)
            )
            stream = merged.token_ids, mask, logprobs
        self.length = len(stream[0])
        self.limit, room = self._budgets.room(len(stream[1]), self.length, self._training)
        if room >= 1:
            self.ids, self.mask, self.logprobs = stream
            self._heard = len(dialogue.messages)
        return room

    async def _sample(self, turn: int, params: dict[str, Any]) -> tuple[int, ...]:
        """Sample the next message and append it; return its token ids.

        Raises SpeakerFault (engine, engine_timeout, engine_cancelled, engine_aborted) when the engine
        fails, hangs beyond the timeout, or cancels or aborts the request.
        """
        self.tokens_in += len(self.ids)
        message, timeout_s = len(self.sampled) + 1, self._settings.rollout.generation_timeout_s
        engine, asked = self._loop.server_manager, {"prompt_ids": self.ids, "sampling_params": params}
        try:
            async with asyncio.timeout(timeout_s):
                output = await engine.generate(request_id=self._request_id, **asked)
        except TimeoutError as error:
            raise SpeakerFault(
                "engine_timeout",
                f"the trajectory waited for the rollout engine: message {message}, after {len(self.ids)} tokens, did "
                f"not come within seal.rollout.generation_timeout_s={timeout_s:g}",
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
        logprobs = output.log_probs or []
        if not params.get("logprobs"):
            logprobs = [0.0] * len(output.token_ids)
        sampled = Sampled(tuple(output.token_ids), tuple(logprobs))
        await self._append(turn, sampled)
        versions = (output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        self.versions += [int(version or 0) for version in versions]
        return sampled.ids

    async def _append(self, turn: int, message: Sampled) -> None:
        """Append a message as it was sampled."""
        ids, logprobs, start = list(message.ids), list(message.logprobs), len(self.mask)
        merged, self.mask, self.logprobs = await _on_token_path(
            self._loop.ct_merge_assistant_token(self.ids, ids, self.mask, self.logprobs, assistant_logprobs=logprobs)
        )
        self.ids = merged.token_ids
        self.sampled.append(message)
        self.spans.append((turn, start, len(self.mask)))

    def decoded(self, token: int) -> str:
        return self._loop.tokenizer.decode([token])

    def _said(self, ids: tuple[int, ...], truncated: bool) -> Said:
        """A message as text, without the token that ended it."""
        return Said(self._loop.tokenizer.decode(ids if truncated else ids[:-1], skip_special_tokens=False), truncated)


async def _on_token_path(step: Awaitable[Result]) -> Result:
    """Await a step of verl's token builder; raise TokenPathError if it refuses the dialogue."""
    try:
        return await step
    except (ValueError, TemplateError) as error:
        raise TokenPathError(f"verl's token builder refused the dialogue: {error}") from error
