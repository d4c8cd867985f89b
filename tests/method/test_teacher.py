"""The teacher's choices without an engine: roles, and what each shows."""

import pytest

from seal.method.interface.cues import Omega
from seal.method.teacher import TEACHERS, Retry, omega_for

CUE, CUES = "schema_required", ("schema_required", "recover")
OMEGA = Omega.of(CUES)


@pytest.mark.parametrize(
    ("teacher", "roles"),
    [
        ("off", ["plain", "cued", "plain", "cued"]),
        ("share", ["plain", "cued", "plain", "cued"]),
        ("retry", ["plain", "retry", "plain", "control"]),
    ],
)
def test_the_roles_of_a_prompts_rollouts(teacher, roles):
    assert [TEACHERS[teacher](0.5).role(sample, 4) for sample in range(4)] == roles


def test_a_single_retry_is_no_control():
    assert [Retry(0.5).role(sample, 2) for sample in range(2)] == ["plain", "retry"]


def test_what_a_role_shows():
    for role in ("plain", "control"):
        assert omega_for(role, OMEGA, CUES, "own", ["mv"]) is None
    assert omega_for("cued", OMEGA, CUES) == OMEGA and omega_for("cued", Omega(), ()) is None


@pytest.mark.parametrize(("entries", "tools", "others"), [("own", ("cd", "mv"), 0), ("other", ("cd", "mv"), 2)])
def test_a_retry_sees_documents_where_all_plain_rollouts_failed_and_a_call_broke_its_schema(entries, tools, others):
    seen = omega_for("retry", OMEGA, CUES, entries, {"mv", "cd"})
    assert (seen.for_category("base"), seen.tools, seen.others) == ((CUE,), tools, others)
    assert omega_for("retry", OMEGA, CUES, entries, ()) is omega_for("retry", OMEGA, CUES, entries, None) is None
    assert omega_for("retry", Omega.of(["recover"]), ["recover"], entries, {"mv"}) is None, "no cue tells documents"


def test_the_control_with_all_documents_needs_no_broken_call():
    for broken in ((), {"mv"}):
        seen = omega_for("retry", OMEGA, CUES, "all", broken)
        assert seen.for_category("base") == (CUE,) and seen.tools is None
    assert omega_for("retry", OMEGA, CUES, "all", None) is None
