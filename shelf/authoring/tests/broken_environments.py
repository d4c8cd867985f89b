"""A small conforming environment, and one for each check that breaks exactly what the check looks for."""

import os
import random
import time
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from env_service.answers import Evaluation, Step
from env_service.environments.base import Document, Guard, Split
from env_service.environments.kit.dialogue import ToolEpisode
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import Check, ToolTask, UserPart
from env_service.environments.kit.worlds import MethodWorld
from seal.method.diagnosis.evidence import CallEvidence

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
WORDS = ("amber", "birch", "cedar", "daisy", "elder", "fern")


class Words(MethodWorld):
    """A list of words."""

    def __init__(self, wanted: str) -> None:
        self.said: list[str] = []
        self.wanted = wanted

    def tool_say(self, word: str) -> str:
        self.said.append(word)
        return f"said {word}"

    def tool_recall(self) -> list[str]:
        return self.said

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        return Check(state_match=self.said == [self.wanted])


class Sound(ToolEnvironment):
    """Say one word. Keeps the contract."""

    name = "sound"
    writes = frozenset({"say"})
    rule = "No word is on both sides."

    def load(self) -> Sequence[ToolTask]:
        return [
            ToolTask(
                id=word,
                category="say",
                side="train" if place < 3 else "eval",
                group=word,
                users=(f"Say {word} once.",),
                reference=((("say", {"word": word}), ("recall", {})),),
                data=word,
            )
            for place, word in enumerate(WORDS)
        ]

    def tools(self, task: ToolTask) -> Sequence[Document]:
        recall = {"type": "object", "properties": {}}
        return (
            {"name": "say", "description": "Say a word.", "parameters": WORD},
            {"name": "recall", "description": "Recall what was said.", "parameters": recall},
        )

    def world(self, task: ToolTask) -> Words:
        return Words(task.data)

    def data_hash(self) -> str:
        return "words-1"


class SharedGroup(Sound):
    """The sides of its split share a group."""

    name = "tasks_and_splits"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, group="words") for task in super().load()]


class Stricter(Sound):
    """Has a method that needs what its document leaves optional."""

    name = "documents"

    def tools(self, task: ToolTask) -> Sequence[Document]:
        say, recall = super().tools(task)
        return ({**say, "parameters": {**WORD, "required": []}}, recall)


class Rewritten(Sound):
    """Has another document of `say`, and perhaps another tool, than it should."""

    say: ClassVar[Mapping[str, Any]] = {}
    more: ClassVar[Sequence[Document]] = ()

    def tools(self, task: ToolTask) -> Sequence[Document]:
        say, recall = super().tools(task)
        given = {key: value for key, value in {**say, **self.say}.items() if value is not None}
        return (given, recall, *self.more)


class Unschooled(Rewritten):
    """Names a type that JSON Schema lacks."""

    name = "unschooled"
    say: ClassVar[Mapping[str, Any]] = {"parameters": {**WORD, "properties": {"word": {"type": "str"}}}}


class Detached(Rewritten):
    """Refers to an API's definitions, which its documents leave out."""

    name = "detached"
    say: ClassVar[Mapping[str, Any]] = {
        "parameters": {**WORD, "properties": {"word": {"$ref": "#/components/schemas/Word"}}}
    }


class Unwrapped(Rewritten):
    """Writes the arguments where their schema belongs."""

    name = "unwrapped"
    say: ClassVar[Mapping[str, Any]] = {"parameters": WORD["properties"]}


class Classed(Rewritten):
    """Gives a class where its schema belongs."""

    name = "classed"
    say: ClassVar[Mapping[str, Any]] = {"parameters": Words}


class Renamed(Rewritten):
    """Has the key of another protocol."""

    name = "renamed"
    say: ClassVar[Mapping[str, Any]] = {"parameters": None, "input_schema": WORD}


class Twofold(Rewritten):
    """Takes a tool from each of two servers, with one name."""

    name = "twofold"
    more: ClassVar[Sequence[Document]] = ({"name": "say", "description": "Say it aloud.", "parameters": WORD},)


class Promising(Rewritten):
    """Documents a tool that its world lacks."""

    name = "promising"
    more: ClassVar[Sequence[Document]] = ({"name": "shout.aloud", "description": "Shout.", "parameters": WORD},)


class Unbuilt(Rewritten):
    """Documents a tool without arguments that its world lacks."""

    name = "unbuilt"
    more: ClassVar[Sequence[Document]] = ({"name": "shout", "description": "Shout.", "parameters": {"type": "object"}},)


class Alike(Rewritten):
    """Has two tools whose names are one name in Python."""

    name = "alike"
    more: ClassVar[Sequence[Document]] = tuple(
        {"name": name, "description": "Say it.", "parameters": WORD} for name in ("say_it", "say.it")
    )

    def world(self, task: ToolTask) -> Words:
        class Plain(Words):
            tool_say_it = Words.tool_say

        return Plain(task.data)


class Modest(Rewritten):
    """Lists an argument that its method does not take."""

    name = "modest"
    say: ClassVar[Mapping[str, Any]] = {
        "parameters": {**WORD, "properties": {**WORD["properties"], "loud": {"type": "boolean"}}}
    }


class Misspelt(Sound):
    """Calls a tool in its references that no document has."""

    name = "misspelt"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, reference=((("recall", {}), ("sya", {"word": task.data})),)) for task in super().load()]

    def world(self, task: ToolTask) -> Words:
        class Patient(Words):
            def tool_sya(self, word: str) -> str:
                return word

        return Patient(task.data)


class Keyed(Sound):
    """Writes its calls as a chat API does."""

    name = "keyed"

    def load(self) -> Sequence[ToolTask]:
        calls: Any = ({"name": "say", "arguments": {"word": "amber"}},)
        return [replace(task, reference=(calls,)) for task in super().load()]


class Unspoken(Sound):
    """Lacks the words of its users."""

    name = "unspoken"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, users=(None,)) for task in super().load()]


class Untold(Sound):
    """Has a stop tool that no document tells of."""

    name = "untold"
    stop_tool = "finish"


class Outdated(Sound):
    """Lists a task in a further split that it no longer has."""

    name = "outdated"

    def further_splits(self) -> Mapping[str, tuple[Split, Mapping[str, Sequence[str]]]]:
        return {"hard": (Split("The long words.", held_out=True), {"train": ["grass"]})}


class Unruled(ToolEnvironment):
    """Has no rule of its split."""

    name, writes = "unruled", Sound.writes
    load, tools, world, data_hash = Sound.load, Sound.tools, Sound.world, Sound.data_hash


class Unforgiving(Sound):
    """Ends an episode at its first error."""

    name = "unforgiving"
    error_limit = 1


class Unbracketed(Sound):
    """Forgets a comma around the calls of a turn."""

    name = "unbracketed"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, reference=(task.reference[0][0],)) for task in super().load()]


class ByLength(Sound):
    """Groups its tasks by a number, as a database would."""

    name = "by_length"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, group=len(task.id)) for task in super().load()]


class Sided(Sound):
    """Calls the side of its held-out tasks by a name of another library."""

    name = "sided"

    def load(self) -> Sequence[ToolTask]:
        return [task if task.side == "train" else replace(task, side="test") for task in super().load()]


class Instanced(Sound):
    """Compares only what a benchmark with several simulators compares beside state and response."""

    name = "instanced"

    def world(self, task: ToolTask) -> Words:
        class Plain(Words):
            def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
                return Check(instances_match=self.said == [self.wanted])

        return Plain(task.data)


class Blunt(Sound):
    """Answers `check` with a boolean."""

    name = "blunt"

    def world(self, task: ToolTask) -> Words:
        class Plain(Words):
            def check(self, turn: int, calls: Sequence[CallEvidence]) -> Any:
                return self.said == [self.wanted]

        return Plain(task.data)


class Judged(Blunt):
    """Does so where only a model plays the user."""

    name = "judged"
    own_users = False

    def user(self, task: ToolTask) -> UserPart:
        return UserPart("You want to hear a word. Then say ###STOP###.")


class Wordy(Sound):
    """Gives its user's instructions where a part belongs."""

    name = "wordy"

    def user(self, task: ToolTask) -> Any:
        return "You want to hear a word."


class Terse(Sound):
    """Gives texts where outcomes belong."""

    name = "terse"

    def world(self, task: ToolTask) -> Words:
        class Plain(Words):
            def call(self, name: str, arguments: dict[str, Any]) -> Any:
                return super().call(name, arguments).text

        return Plain(task.data)


class Quitting(Sound):
    """Reads the words with a parser of a command line, which exits at what it does not know."""

    name = "quitting"

    def world(self, task: ToolTask) -> Words:
        class Plain(Words):
            def tool_say(self, word: str) -> str:
                ArgumentParser(exit_on_error=False).parse_args([f"--{word}"])
                return super().tool_say(word)

        return Plain(task.data)


class Mute(Sound):
    """Has instructions only for a compact format."""

    name = "mute"

    def instructions(self, task: ToolTask, compact: bool) -> Any:
        return "Say it." if compact else None


class Separated(Sound):
    """Answers with characters at which Python's `splitlines` parts a text, as web pages hold them."""

    name = "separated"

    def world(self, task: ToolTask) -> Words:
        class Paged(Words):
            def tool_recall(self) -> list[str]:
                return ["one\u2028two\u2029three\x85four", *self.said]

        return Paged(task.data)


class Bracketed(Sound):
    """Words with brackets, which users say, tools that have no Python name or end the turn; `writes` is a list.

    Its references and its `writes` name the tool that ends the turn, which no world has.
    """

    name = "bracketed"
    stop_tool = "finish"
    writes: ClassVar[Any] = ["say", "word.forget", "finish"]

    def load(self) -> Sequence[ToolTask]:
        words = {task.id: f"Report ({task.id})" for task in super().load()}
        return [
            replace(
                task,
                users=(f"Say {words[task.id]} once.",),
                reference=((("say", {"word": words[task.id]}), ("recall", {}), ("finish", {})),),
                data=words[task.id],
            )
            for task in super().load()
        ]

    def tools(self, task: ToolTask) -> Sequence[Document]:
        parameters = {"$ref": "#/$defs/A", "$defs": {"A": WORD}}
        finish = {"name": "finish", "description": "End the turn.", "parameters": {"type": "object", "properties": {}}}
        forget = {"name": "word.forget", "description": "Forget a word.", "parameters": parameters}
        return (*super().tools(task), forget, finish)

    def instructions(self, task: ToolTask, compact: bool) -> str:
        return 'A call looks like {"name": "recall", "arguments": {}}.'

    def world(self, task: ToolTask) -> Words:
        class Forgetting(Words):
            def tool_word_forget(self, word: str) -> str:
                self.said.remove(word)
                return "forgotten"

        return Forgetting(task.data)


class Twice(Sound):
    """Gives two tasks one id."""

    name = "twice"

    def load(self) -> Sequence[ToolTask]:
        return [*super().load(), super().load()[0]]


class Unsolved(Sound):
    """Has no call in its references, so its verifier is never asked."""

    name = "unsolved"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, reference=((),)) for task in super().load()]


class Random(Sound):
    """Answers with a random number."""

    name = "determinism"

    def world(self, task: ToolTask) -> Words:
        class Drawn(Words):
            def tool_recall(self) -> list[str]:
                return [*self.said, str(random.random())]

        return Drawn(task.data)


class OfThisProcess(Sound):
    """Answers with the number of its process."""

    name = "replay"

    def world(self, task: ToolTask) -> Words:
        class Numbered(Words):
            def tool_recall(self) -> list[str]:
                return [*self.said, str(os.getpid())]

        return Numbered(task.data)


class Shared(Sound):
    """Keeps the words of the episode that was opened last, for all."""

    name = "isolation"
    latest: ClassVar[Words]

    def world(self, task: ToolTask) -> Words:
        Shared.latest = Words(task.data)

        class Latest(Words):
            def tool_say(self, word: str) -> str:
                return Shared.latest.tool_say(word)

            def tool_recall(self) -> list[str]:
                return Shared.latest.said

            def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
                return Check(state_match=Shared.latest.said == [self.wanted])

        return Latest(task.data)


class Counting(Sound):
    """Counts its evaluations."""

    name = "idempotence"

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> ToolEpisode:
        class Counted(ToolEpisode):
            asked = 0

            def evaluate(self, params: Mapping[str, Any]) -> Evaluation | float:
                self.asked += 1
                return {**super().evaluate(params), "asked": self.asked}

        return Counted(self.scene(task_id, params), guard)


class Lenient(Sound):
    """Opens some task, whichever is asked for."""

    name = "bad_input"

    def _task(self, task_id: str) -> ToolTask:
        return self._tasks.get(task_id, self._tasks[WORDS[0]])


class Stumbling(Sound):
    """Cannot take an empty message."""

    name = "any_message"

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> ToolEpisode:
        class Hasty(ToolEpisode):
            def step(self, content: str, truncated: bool) -> Step:
                assert content[0] is not None
                return super().step(content, truncated)

        return Hasty(self.scene(task_id, params), guard)


class Hurried(Sound):
    """Looks at the first letter of a word that may be empty."""

    name = "hurried"

    def world(self, task: ToolTask) -> Words:
        class Initials(Words):
            def tool_say(self, word: str) -> str:
                return f"{super().tool_say(word)}, which begins with {word[0]}"

        return Initials(task.data)


class Repeating(Rewritten):
    """Takes a number that a document calls an integer for one of Python's."""

    name = "repeating"
    say: ClassVar[Mapping[str, Any]] = {
        "parameters": {**WORD, "properties": {**WORD["properties"], "times": {"type": "integer", "minimum": 0}}}
    }

    def world(self, task: ToolTask) -> Words:
        class Repeated(Words):
            def tool_say(self, word: str, times: int = 1) -> str:
                return super().tool_say(word * times)

        return Repeated(task.data)


class Unguarded(Sound):
    """Runs calls without the guard that it is given."""

    name = "deadlines"

    def open(self, task_id: str, params: Mapping[str, Any], guard: Guard) -> ToolEpisode:
        return super().open(task_id, params, Guard())


class WrongReference(Sound):
    """Has a reference that says another word than the task wants."""

    name = "reference_passes"

    def load(self) -> Sequence[ToolTask]:
        return [replace(task, data="grass") for task in super().load()]


class Indulgent(Sound):
    """Lets everything pass."""

    name = "faults_fail"

    def world(self, task: ToolTask) -> Words:
        class Praised(Words):
            def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
                return Check(state_match=True)

        return Praised(task.data)


class Unwritten(Sound):
    """Leaves the tool that changes the state out of `writes`."""

    name = "unwritten"
    writes = frozenset()


class Unreadable(Sound):
    """Cannot read its tasks."""

    name = "unreadable"

    def load(self) -> Sequence[ToolTask]:
        raise KeyError("words")


class Unfinished(ToolEnvironment):
    """Has no `load`."""

    name = "unfinished"


class Talkative(Sound):
    """Tells the reference's call in its instructions."""

    name = "no_leak"

    def instructions(self, task: ToolTask, compact: bool) -> str:
        return f"For example: say(word={task.data!r})."


class Confiding(Sound):
    """Tells the policy what the model that plays the user is told."""

    name = "confiding"

    def user(self, task: ToolTask) -> UserPart:
        return UserPart(f"You want to hear one word: {task.data}. You will never say it first.")

    def instructions(self, task: ToolTask, compact: bool) -> str:
        return "The user will say: you will never say it first."


class Discreet(Confiding):
    """Keeps it to itself."""

    name = "discreet"

    def instructions(self, task: ToolTask, compact: bool) -> str:
        return "Ask for the word."


class Overlapping(Sound):
    """Wants, in lines of their own, what its tool's document says and what its tool answers."""

    name = "overlapping"

    def load(self) -> Sequence[ToolTask]:
        wood = {task.id: f"a {task.id} wood table" for task in super().load()}
        return [
            replace(task, reference=((("say", {"word": wood[task.id]}), ("recall", {})),), data=wood[task.id])
            for task in super().load()
        ]

    def world(self, task: ToolTask) -> Words:
        class Hinting(Words):
            def tool_recall(self) -> list[str]:
                return [*self.said, self.wanted]

        return Hinting(task.data)

    def user(self, task: ToolTask) -> UserPart:
        return UserPart(f"You want the assistant to\nsay a word:\n{task.data}.\nThen say ###STOP###.")


class Parting(Discreet):
    """Only a model plays its users, who take their leave in words of their own."""

    name = "parting"
    own_users = False

    def user(self, task: ToolTask) -> UserPart:
        return UserPart(f"You want to hear one word: {task.data}. Then say goodbye.", stops=("Goodbye",))


class Slow(Sound):
    """Computes for ten milliseconds before an episode begins."""

    name = "throughput"

    def world(self, task: ToolTask) -> Words:
        until = time.process_time() + 0.01
        while time.process_time() < until:
            pass
        return super().world(task)
