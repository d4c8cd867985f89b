"""The list of private names of other libraries: true of the installed packages, complete, and documented."""

import inspect
import re
from dataclasses import replace

import pytest

from seal.rollout.agent_loop import SEALAgentLoop
from seal.system.paths import HOME
from seal.training.async_trainer import SEALAsyncTrainer
from seal.training.durable import Durable
from seal.training.mini_batches import WholeRollouts
from seal.training.replay_buffer import SEALAsyncReplayBuffer, SEALReplayBuffer
from seal.training.trainer import SEALTraining
from tests.backends.internals import Internal, changes, internals, versions

PRIVATE = Internal("json.decoder:JSONDecoder.raw_decode", "called", ("seal/x.py",), "why", "-", signature="(self, s)")


def test_the_installed_packages_are_as_expected():
    found = changes()
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("internal", "sentence"),
    [
        (PRIVATE, "json.decoder:JSONDecoder.raw_decode is now (self, s, idx=0)"),
        (
            replace(PRIVATE, name="json.decoder:JSONDecoder.gone"),
            "JSONDecoder.gone does not exist any more: see",
        ),
        (replace(PRIVATE, name="json.gone:decode"), "json.gone:decode does not exist any more: see seal/x.py."),
        (
            replace(PRIVATE, signature=None, source="no such line"),
            "json.decoder does not hold `no such line` any more: see seal/x.py.",
        ),
        (
            replace(PRIVATE, name="collections.abc:Sized", signature=None, abstract=("__len__", "size")),
            "collections.abc:Sized has other abstract methods than expected (size): see seal/x.py.",
        ),
    ],
)
def test_a_change_is_told_in_one_sentence(internal, sentence):
    assert sentence in internal.change()


def test_a_version_that_was_not_checked_is_told(monkeypatch):
    monkeypatch.setitem(versions(), "verl", ("0.0.1",))
    assert changes()[-1].endswith("and the list was checked against 0.0.1.")


@pytest.mark.parametrize("internal", internals(), ids=lambda internal: internal.name)
def test_an_entry_has_one_expectation_and_names_files_that_are_there(internal):
    assert sum(kind is not None for kind in (internal.signature, internal.source, internal.abstract)) == 1
    assert all((HOME / path).exists() for path in internal.where)
    assert internal.use in ("overridden", "replaced", "called", "assumed")


OURS = [Durable, SEALTraining, WholeRollouts, SEALAsyncTrainer, SEALReplayBuffer, SEALAsyncReplayBuffer, SEALAgentLoop]


@pytest.mark.parametrize("ours", OURS)
def test_every_private_method_that_we_override_is_in_the_list(ours):
    private = {name for name, value in vars(ours).items() if re.match("_[a-z]", name) and inspect.isfunction(value)}
    overridden = {name for name in private if any(hasattr(base, name) for base in ours.__bases__)}
    listed = {internal.target.rpartition(".")[2] for internal in internals() if internal.use == "overridden"}
    assert overridden <= listed and overridden


def test_every_object_that_we_replace_is_in_the_list():
    text = "".join(path.read_text() for path in (HOME / "seal" / "backends").glob("*.py"))
    assigned = set(re.findall(r"^ *(?!self\b|os\b)\w+\.(\w+)(?:\[.*\])? = ", text, re.MULTILINE))
    listed = {internal.target.rpartition(".")[2] for internal in internals() if internal.use == "replaced"}
    assert assigned and assigned <= listed
