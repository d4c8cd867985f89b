"""What a verification recomputes, and what it only protects by a hash.

The tests change every kind of value in a certificate whose hashes are made to fit,
and compare what is then found with these lists.
"""

TRAJECTORY_HASHED = frozenset(
    {
        *("seconds", "rebuilt", "infra", "infra_message", "times", "day"),
        *("prompt_tokens", "length", "tokens_in", "drawn", "weights"),
    }
)
"""Fields of a trajectory that do not follow from what was said. `prompt_tokens`, `length` and `truncated` must agree
with the budgets, and `day` must be a date; otherwise they are taken as they are."""

STEP_HASHED = frozenset({"seconds", "seal_seconds", "logp_diff_max", "logp_diff_mean"})
"""Fields of a step's line that do not follow from its trajectories."""

LOST_HASHED = TRAJECTORY_HASHED | {"output", "tokens", "stop", "truncated"}
"""The same of a trajectory that was lost to infrastructure, whose dialogue nothing follows from: without evidence,
nobody knows which of its calls exceeded a limit."""

ASPECTS = {
    "dialogues": ("input", "output"),
    "evidence": ("evidence",),
    "labels": ("labels", "diagnosis"),
    "rewards": ("score", "excluded", "silent", "stop"),
    "counts": ("turns", "turns_passed", "progress", "calls", "errors", "tokens", "spans", "truncated"),
    "identities": ("format", "step", "task_id", "data_source", "category", "split", "sample", "group"),
    "episodes": ("omega_version", "prompt_mode", "data_hash"),
    "weights": ("w",),
    "advantages": ("advantage",),
}
"""The recomputed fields of a trajectory, by the name under which agreement is counted."""

ASPECT_OF = {field: aspect for aspect, fields in ASPECTS.items() for field in fields}
"""The name under which a field's agreement is counted."""
