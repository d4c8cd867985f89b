"""One trajectory: the policy and the environment service take turns, tokens in and tokens out.

What is trained is what was sampled: assistant tokens and their log-probs come
from the engine and are never rebuilt from text; verl's continuous-token builder
appends the environment's messages, masked; `token_path` checks every trajectory
for this. A failure of the service or the engine is recorded in the trajectory
and not raised, because a bad rollout is data. Every wait has a deadline.
"""

import asyncio
import functools
import logging
import time
import zlib
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from jinja2 import TemplateError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.tokenizer import normalize_token_ids

from seal.interface.cues import Omega
from seal.records.trajectory import CUTS, FINAL, TrajectoryRecord
from seal.rollout.budgets import Budgets
from seal.rollout.dialogue import ENGINE, ENVIRONMENT, Dialogue
from seal.rollout.engine import EngineFault, generate
from seal.rollout.env_client import EnvironmentFault
from seal.rollout.episode import Episode
from seal.rollout.rewards import terminal_reward
from seal.rollout.row import Row
from seal.rollout.services import Services, shared_services
from seal.rollout.token_path import Sampled, TokenPathError, check, drift
from seal.settings import EnvServiceSettings, SealSettings

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class PromptTooLong(RuntimeError):
    """A first prompt that is longer than data.max_prompt_length."""

    cause = "prompt_too_long"


class SEALAgentLoop(AgentLoopBase):
    """verl's agent loop over the environment service; registered as `seal_agent`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        settings, service = SealSettings.of(self.config), EnvServiceSettings.of(self.config)
        self.settings = settings.rollout
        self.interface = settings.interface
        self.reward = settings.reward
        self.taxonomy = settings.diagnosis.taxonomy
        self.service = service
        self.services: Services = shared_services(service)
        self.budgets = Budgets.of(self.config)

    def _cap_text_prompt_length(self, prompt_ids: list[int]) -> list[int]:
        # verl would cut off the head of the prompt, and with it the tools.
        limit = self.rollout_config.prompt_length
        if len(prompt_ids) > limit:
            raise PromptTooLong(
                f"a first prompt has {len(prompt_ids)} tokens and data.max_prompt_length is {limit}: "
                f"raise data.max_prompt_length to at least {len(prompt_ids)}"
            )
        return prompt_ids

    async def run(self, sampling_params: dict[str, Any], **row) -> AgentLoopOutput:
        """Roll one trajectory out; row holds the data set's columns and, in training, `omega`."""
        async with _slots(self.settings.concurrency):
            return await self._run(sampling_params, Row.read(row).sharing(self.interface.share))

    async def _run(self, sampling_params: dict[str, Any], row: Row) -> AgentLoopOutput:
        started = time.monotonic()
        for attempt in range(self.settings.attempts):
            dialogue = Dialogue()
            try:
                async with asyncio.timeout(self.settings.deadline_s):
                    dialogue.evaluation = await self._episode(dialogue, sampling_params, row, attempt)
                break
            except EnvironmentFault as fault:
                dialogue.infra, dialogue.infra_message = f"environment_{fault.cause}", str(fault)
            except (EngineFault, PromptTooLong, TokenPathError) as fault:
                dialogue.infra, dialogue.infra_message = fault.cause, str(fault)
            except TimeoutError:
                dialogue.infra = "trajectory_deadline"
                dialogue.infra_message = (
                    f"not finished after seal.rollout.deadline_s={self.settings.deadline_s:g}, waiting for "
                    f"{dialogue.waiting_for} after {len(dialogue.sampled)} messages of the policy"
                )
            logger.warning("trajectory of %s: %s", row.task_id, dialogue.infra_message)
            if dialogue.infra in FINAL:
                break
        return self._output(dialogue, row, time.monotonic() - started)

    async def _episode(
        self, dialogue: Dialogue, sampling_params: dict[str, Any], row: Row, attempt: int
    ) -> dict[str, Any]:
        """Create, interact, evaluate and release; return the service's evaluation."""
        episode = self._opened(row)
        try:
            with dialogue.waits_for(ENVIRONMENT):
                messages, dialogue.info = await episode.create()
            _require_wording(row.omega, dialogue.info)
            dialogue.messages = list(messages)
            dialogue.ids = await _on_token_path(self.ct_build_initial_tokens(dialogue.messages))
            dialogue.prompt_length = len(dialogue.ids)
            await self._interact(dialogue, episode, sampling_params, row, attempt)
            spans = [(start, end) for _, start, end in dialogue.spans]
            check(dialogue.response, dialogue.mask, dialogue.logprobs, spans, dialogue.sampled)
            dialogue.drift = await asyncio.to_thread(self._drift, dialogue)
            cut = {"stop": CUTS[dialogue.stop]} if dialogue.stop in CUTS else {}
            with dialogue.waits_for(ENVIRONMENT):
                evaluation = await episode.evaluate({"taxonomy": self.taxonomy, **cut})
            if evaluation["stop"] == "answered":
                dialogue.stop = "completed"  # in validation the last message may be cut and still count
            elif dialogue.stop == "completed":
                dialogue.stop = evaluation["stop"]  # the benchmark ended the episode early
            return evaluation
        finally:
            dialogue.rebuilt = episode.rebuilt
            await episode.release()

    def _opened(self, row: Row) -> Episode:
        params = row.create_params(self.settings, self.service.mode(row.environment))
        return Episode(self.services, row.task_id, uuid4().hex, params, row.environment)

    async def _interact(
        self, dialogue: Dialogue, episode: Episode, sampling_params: dict[str, Any], row: Row, attempt: int
    ) -> None:
        """Alternate messages of the policy and the environment until the episode or a budget ends."""
        eos = self.tokenizer.eos_token_id
        request_id = uuid4().hex  # one for all messages, so that the same server holds the prefix
        seed = f"{self.settings.seed}/{row.place}/{attempt}"
        training = row.training
        turn = 0
        while True:
            message = len(dialogue.sampled)
            dialogue.length = len(dialogue.ids)
            limit, room = self.budgets.room(len(dialogue.mask), dialogue.length, training)
            if room < 1:
                dialogue.stop = limit
                return
            if training and message >= self.budgets.max_steps:
                dialogue.stop = "max_steps"
                return
            params = {
                **sampling_params,
                "max_tokens": room,
                "stop_token_ids": [eos],
                "seed": zlib.crc32(f"{seed}/{message}".encode()),
            }
            ids = await self._sample(dialogue, turn, request_id, params)
            # A message shorter than its room ended with a stop token: eos or another one of the model.
            truncated = ids[-1] != eos and len(ids) >= room
            content = self.tokenizer.decode(ids if truncated else ids[:-1], skip_special_tokens=False)
            previous = [*dialogue.messages, {"role": "assistant", "content": content}]
            with dialogue.waits_for(ENVIRONMENT):
                observation = await episode.step(f"{attempt}-{message + 1}", content, truncated)
            dialogue.messages = [*previous, *observation.messages]
            turn = observation.turn
            dialogue.answered()
            if truncated:
                dialogue.truncated.append(message)
            if observation.done:
                dialogue.stop = limit if truncated else "completed"
                return
            if truncated:  # in validation, as officially, a cut message is closed and the dialogue goes on
                dialogue.ids, dialogue.mask = [*dialogue.ids, eos], [*dialogue.mask, 0]
                dialogue.logprobs = [*dialogue.logprobs, 0.0]
            merged, mask, logprobs = await _on_token_path(
                self.ct_merge_context_msg(previous, dialogue.messages, dialogue.ids, dialogue.mask, dialogue.logprobs)
            )
            dialogue.length = len(merged.token_ids)
            limit, room = self.budgets.room(len(mask), dialogue.length, training)
            if room < 1:
                dialogue.stop = limit
                return
            dialogue.ids, dialogue.mask, dialogue.logprobs = merged.token_ids, mask, logprobs

    async def _sample(self, dialogue: Dialogue, turn: int, request_id: str, params: dict[str, Any]) -> tuple[int, ...]:
        """Sample the next message and append it as it was sampled; return its token ids."""
        with dialogue.waits_for(ENGINE):
            dialogue.asked()
            dialogue.tokens_in += len(dialogue.ids)
            number, timeout_s = len(dialogue.sampled) + 1, self.settings.generation_timeout_s
            output = await generate(self.server_manager, request_id, dialogue.ids, params, number, timeout_s)
        logprobs = output.log_probs or []
        if not params.get("logprobs"):
            logprobs = [0.0] * len(output.token_ids)
        message = Sampled(tuple(output.token_ids), tuple(logprobs))
        ids, logprobs, start = list(message.ids), list(message.logprobs), len(dialogue.mask)
        merged, dialogue.mask, dialogue.logprobs = await _on_token_path(
            self.ct_merge_assistant_token(
                dialogue.ids, ids, dialogue.mask, dialogue.logprobs, assistant_logprobs=logprobs
            )
        )
        dialogue.ids = merged.token_ids
        dialogue.sampled.append(message)
        dialogue.spans.append((turn, start, len(dialogue.mask)))
        dialogue.received()
        found = (output.extra_fields.get(name) for name in ("min_global_steps", "max_global_steps"))
        dialogue.weight_versions += [int(version or 0) for version in found]
        return message.ids

    def _drift(self, dialogue: Dialogue) -> int | None:
        """Count the tokens that differ when the text is tokenised again; None if the template refuses the dialogue."""
        if not dialogue.sampled:
            return 0
        last = max(i for i, message in enumerate(dialogue.messages) if message["role"] == "assistant")
        sampled_end = dialogue.prompt_length + dialogue.spans[-1][2]
        try:
            again = self.tokenizer.apply_chat_template(
                dialogue.messages[: last + 1], tokenize=True, **self.apply_chat_template_kwargs
            )
        except TemplateError:
            return None
        boundaries = frozenset(self.tokenizer.added_tokens_decoder)
        return drift(dialogue.ids[:sampled_end], normalize_token_ids(again), boundaries)

    def _output(self, dialogue: Dialogue, row: Row, seconds: float) -> AgentLoopOutput:
        evaluation = dialogue.evaluation
        prompt, response = dialogue.ids[: dialogue.prompt_length], dialogue.response
        mask, logprobs = dialogue.mask, dialogue.logprobs
        cut = row.training and dialogue.stop in CUTS
        excluded = cut and self.reward.cut == "exclude"
        if evaluation is None or excluded or not response:
            # verl needs at least one prompt and one response token; the mask keeps this one out of the loss.
            eos = self.tokenizer.eos_token_id
            prompt, response, mask, logprobs = prompt or [eos], [eos], [0], [0.0]
        score = terminal_reward(evaluation, self.reward, cut) if evaluation else 0.0
        record = self._record(dialogue, row, score, excluded, seconds)
        versions = dialogue.weight_versions or [row.step]
        return AgentLoopOutput(
            prompt_ids=prompt,
            response_ids=response,
            response_mask=mask,
            response_logprobs=logprobs,
            reward_score=score,
            num_turns=len(dialogue.messages),
            metrics={"generate_sequences": dialogue.seconds[ENGINE], "tool_calls": dialogue.seconds[ENVIRONMENT]},
            extra_fields={
                "min_global_steps": min(versions),
                "max_global_steps": max(versions),
                "reward_extra_info": {"seal": record.to_json()},
            },
        )

    def _record(self, dialogue: Dialogue, row: Row, score: float, excluded: bool, seconds: float) -> TrajectoryRecord:
        info = dialogue.info
        return TrajectoryRecord.of(
            dialogue.evaluation,
            task_id=row.task_id,
            data_source=row.data_source,
            category=row.category,
            split=row.split,
            sample=row.sample,
            score=score,
            spans=tuple(dialogue.spans) if dialogue.evaluation else (),
            tokens=sum(dialogue.mask),
            tokens_in=dialogue.tokens_in,
            seconds=round(seconds, 3),
            stop=dialogue.stop,
            excluded=excluded,
            drift=dialogue.drift,
            rebuilt=dialogue.rebuilt,
            infra=dialogue.infra,
            infra_message=dialogue.infra_message,
            omega_version=(info.get("omega") or {}).get("version"),
            prompt_mode=self.service.mode(row.environment),
            data_hash=str(info.get("data_hash", "")),
            messages=tuple(dialogue.messages),
            truncated=tuple(dialogue.truncated),
            prompt_tokens=dialogue.prompt_length,
            length=dialogue.length,
            day=str(info.get("day", "")),
            began=round(dialogue.began, 3),
            times=tuple(dialogue.times),
            sampled=self._sampled(dialogue) if self.settings.log_tokens else (),
            withdrawn=row.withdrawn,
            drawn=row.step if row.training else None,
            weights=_ends(dialogue.weight_versions) if row.training else None,
        )

    def _sampled(self, dialogue: Dialogue) -> tuple[tuple[tuple[str, float], ...], ...]:
        """Text and log-prob of each sampled token, by message."""
        return tuple(
            tuple(
                (self.tokenizer.decode([token], skip_special_tokens=False), round(logprob, 5))
                for token, logprob in zip(message.ids, message.logprobs, strict=True)
            )
            for message in dialogue.sampled
        )


def _ends(versions: list[int]) -> tuple[int, int] | None:
    return (min(versions), max(versions)) if versions else None


@functools.cache
def _slots(concurrency: int) -> asyncio.Semaphore:
    """Return this worker's places; a whole validation at once would overload the service and the engine's queue."""
    return asyncio.Semaphore(concurrency)


def _require_wording(omega: Mapping[str, Any] | None, info: Mapping[str, Any]) -> None:
    """Raise EnvironmentFault if the service words the cues differently from this SEAL or leaves them out."""
    sent = Omega.from_json(omega).digest if omega is not None else None
    used = (info.get("omega") or {}).get("digest")
    if used != sent:
        raise EnvironmentFault(
            "refused",
            f"the service's cues have the wording {used} and this SEAL's {sent}: start the service from this version",
        )


async def _on_token_path(step: Awaitable[Result]) -> Result:
    """Await a step of verl's token builder; raise TokenPathError if it refuses the dialogue."""
    try:
        return await step
    except ValueError as error:
        raise TokenPathError(f"verl's token builder refused the dialogue: {error}") from error
