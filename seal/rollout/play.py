"""One episode: a speaker and the environment take turns, and what happened becomes a TrajectoryRecord.

This is the only driver of an episode on a service: of rollouts (`engine.EngineSpeaker`), evaluations (an endpoint) and
replays of stored trajectories (`shelf/replay/player.py`). A failure of the service or the speaker is recorded in the
trajectory and not raised, because a bad rollout is data. Every wait has a deadline.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from env_service.client import ServiceError
from seal.method.diagnosis.rules import taxonomy_of
from seal.records.trajectory import CUTS, TrajectoryRecord
from seal.rollout.dialogue import ENVIRONMENT, Dialogue
from seal.rollout.episode import Episode, Observation
from seal.rollout.rewards import terminal_reward
from seal.rollout.speaker import Speaker, SpeakerFault
from seal.rollout.user import USER, User
from seal.settings.reward import RewardSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Terms:
    """The terms on which an episode is played and judged."""

    training: bool = False
    """True if `reward` decides the score; in a validation the verifier does."""
    reward: RewardSettings = field(default_factory=RewardSettings)
    """The terminal reward of a training trajectory."""
    taxonomy: str | None = None
    """The rules of the labels; None for the environment's default."""
    deadline_s: float = 1800.0
    """Seconds for the whole episode."""
    deadline: str = "deadline_s"
    """The name under which a user sets the deadline."""


async def play(
    episode: Episode, speaker: Speaker, known: Mapping[str, Any], terms: Terms, user: User | None = None
) -> TrajectoryRecord:
    """Open an episode, pass messages back and forth until it or the speaker ends, evaluate and release it.

    known: the record's fields that name the rollout (task_id, data_source, category, split, sample, ...). A failure of
    the service or the speaker gives a record with its cause (`infra`); any other record has the evaluation and reward.
    user: says the user's messages, in an episode that was opened for that.
    """
    dialogue, evaluation, infra, message = Dialogue(), None, None, ""
    try:
        async with asyncio.timeout(terms.deadline_s):
            evaluation = await _play(dialogue, episode, speaker, terms, user)
    except (ServiceError, SpeakerFault) as fault:
        infra, message = fault.cause, str(fault)
    except TimeoutError:
        waited = f"waiting for {dialogue.waiting_for} after {len(dialogue.turns)} messages of the policy"
        late = {speaker.name: speaker.late, USER: "user_timeout"}
        infra = late.get(dialogue.waiting_for, Speaker.late)
        message = f"not finished after {terms.deadline}={terms.deadline_s:g}, {waited}"
    finally:
        await speaker.close(dialogue)
    # No log can hold half of a surrogate pair, which the words of a harness may have from its policy.
    message = (message or dialogue.note).encode(errors="replace").decode()
    if infra is not None:
        logger.warning("trajectory of %s: %s", episode.task_id, message)
    cut = terms.training and dialogue.stop in CUTS
    played = {
        "score": _reward(evaluation, terms, cut) if evaluation else 0.0,
        "stop": dialogue.stop,
        "excluded": cut and terms.reward.cut == "exclude",
        "silent": cut and terms.reward.cut == "silent",
        "seconds": dialogue.seconds(),
        "rebuilt": episode.rebuilt,
        "infra": infra,
        "infra_message": message,
        "omega_version": (dialogue.info.get("omega") or {}).get("version"),
        "data_hash": str(dialogue.info.get("data_hash", "")),
        "messages": tuple(dialogue.messages),
        "truncated": tuple(dialogue.truncated),
        "day": str(dialogue.info.get("day", "")),
        "times": tuple(dialogue.times),
        "user": tuple(said._asdict() for said in dialogue.user),
    }
    return TrajectoryRecord.of(evaluation, **played | speaker.facts(dialogue) | dict(known))


def _reward(evaluation: Mapping[str, Any], terms: Terms, cut: bool) -> float:
    if not terms.training:
        return float(bool(evaluation["valid"]))  # only the verifier judges a validation
    own = taxonomy_of(terms.taxonomy).reward if terms.taxonomy else None
    if cut or not own:
        return terminal_reward(evaluation, terms.reward, cut)
    if not 0 <= (reward := own(evaluation)) <= 1:
        raise ValueError(f"the reward of the taxonomy {terms.taxonomy} is {reward!r}; it must be a number from 0 to 1")
    return float(reward)


async def _play(
    dialogue: Dialogue, episode: Episode, speaker: Speaker, terms: Terms, user: User | None
) -> dict[str, Any]:
    """The service's evaluation."""
    try:
        dialogue.waiting_for = ENVIRONMENT
        messages, dialogue.info, part = await episode.create()
        dialogue.messages = list(messages)
        if part is not None:
            user.begin(part)
            if (await _hear(dialogue, episode, user, Observation((), False, 0, ()))).done:
                raise SpeakerFault("user_role", "the user has used up its messages before the policy spoke")
        await _interact(dialogue, episode, speaker, user)
        await speaker.ended(dialogue)
        dialogue.waiting_for = ENVIRONMENT
        params = {"taxonomy": terms.taxonomy, "stop": CUTS.get(dialogue.stop)}
        evaluation = await episode.evaluate({name: value for name, value in params.items() if value})
        if evaluation["stop"] == "answered":
            dialogue.stop = "completed"  # in validation the last message may be cut and still count
        elif dialogue.stop == "completed":
            dialogue.stop = evaluation["stop"]  # the benchmark ended the episode early
        return evaluation
    finally:
        await episode.release()


async def _hear(dialogue: Dialogue, episode: Episode, user: User | None, observation: Observation) -> Observation:
    """Let the user speak until it is the policy's turn or the episode is over; return the last observation."""
    while observation.user is not None:
        dialogue.waiting_for = USER
        said = await user.say(observation.user)
        dialogue.user.append(said)
        dialogue.waiting_for = ENVIRONMENT
        observation = await episode.step(said.text, role="user")
        dialogue.messages = [*dialogue.messages, *observation.messages]
        dialogue.turn = observation.turn
    return observation


async def _interact(dialogue: Dialogue, episode: Episode, speaker: Speaker, user: User | None) -> None:
    """Alternate messages of the speaker and the environment until one of them ends the dialogue."""
    while True:
        dialogue.waiting_for, asked = speaker.name, dialogue.seconds()
        said = await speaker.say(dialogue)
        if said is None:
            dialogue.stop = speaker.limit or "completed"
            return
        dialogue.waiting_for, received = ENVIRONMENT, dialogue.seconds()
        dialogue.turns.append(dialogue.turn)
        observation = await episode.step(said.text, said.truncated)
        if said.truncated:
            dialogue.truncated.append(len(dialogue.turns) - 1)
        dialogue.messages = [*dialogue.messages, {"role": "assistant", "content": said.text}, *observation.messages]
        dialogue.turn = observation.turn
        dialogue.times.append((asked, received, dialogue.seconds()))
        observation = await _hear(dialogue, episode, user, observation)
        if observation.done:
            dialogue.stop = (speaker.limit if said.truncated else "") or "completed"
            return
