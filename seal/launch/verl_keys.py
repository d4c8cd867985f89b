"""What verl's own keys may be: the types of its dataclasses, of the keys that we document, and what SEAL cannot run.

verl's sources are read, not imported: importing its configuration classes takes
seconds and loads torch.
"""

import ast
import functools
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ConfigDict, TypeAdapter, ValidationError

from seal.settings.base import Amount, Count
from seal.settings.sentences import SettingsError, kind, shown
from seal.system.errors import LaunchError

DOCUMENTED: dict[str, Any] = {
    "actor_rollout_ref.model.path": str,
    "actor_rollout_ref.rollout.agent.agent_loop_config_path": str,
    "data.train_batch_size": Count,
    "data.gen_batch_size": Count | None,
    "data.val_batch_size": Count | None,
    "data.max_prompt_length": Count,
    "data.max_response_length": Count,
    "data.dataloader_num_workers": Amount,
    "data.seed": int | None,
    "ray_kwargs.ray_init.num_cpus": Count | None,
    "ray_kwargs.ray_init.address": str | None,
    "trainer.experiment_name": str,
    "trainer.project_name": str,
    "trainer.default_local_dir": str,
    "trainer.n_gpus_per_node": Count,
    "trainer.nnodes": Count,
    "trainer.total_epochs": Count,
    "trainer.total_training_steps": Count | None,
    "trainer.test_freq": int,
    "trainer.save_freq": int,
    "trainer.max_actor_ckpt_to_keep": Count | None,
    "trainer.max_critic_ckpt_to_keep": Count | None,
    "trainer.resume_from_path": str | None,
}
"""Keys of blocks for which verl has no dataclass."""

_TRACE = "it belongs to verl's traces, which SEAL does not record (seal_log/trajectories holds whole episodes)"

REFUSED: dict[str, tuple[Any, str]] = {
    "algorithm.filter_groups.enable": (
        False,
        "verl would evict groups before their labels reach C_t, and refills would arrive in another order than exact "
        "resume expects",
    ),
    "actor_rollout_ref.rollout.trace.backend": (
        None,
        "verl would record each request to the engine by itself, without its episode, labels and reward; "
        "seal_log/trajectories holds whole episodes",
    ),
    "actor_rollout_ref.rollout.trace.token2text": (False, _TRACE),
    "actor_rollout_ref.rollout.trace.max_samples_per_step_per_worker": (None, _TRACE),
}
"""Keys of verl's that SEAL cannot run with: what they may be, and why nothing else."""

_SCALARS = {"bool": bool, "int": int, "float": float}
_CONFIGURATIONS = ("workers/config", "trainer/config", "utils/profiler", "utils/skip")


class Leaf(NamedTuple):
    """The value of a key, and its type in verl's dataclass of the block (None if there is none)."""

    value: Any
    type: Any


def require_types(written: Mapping[str, Any], resolved: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """SettingsError for the first key that verl could not read or SEAL cannot run.

    written, resolved: the configuration with and without interpolations; a key that
    follows another one is checked after it. defaults: the configuration that every
    recipe starts from. A key without a type keeps that of its default: a text is not a
    switch (`off` would count as true).
    """
    found, standard = dict(leaves(resolved)), dict(leaves(defaults))
    own = {key for key, leaf in leaves(written) if "${" not in str(leaf.value)}
    for key in sorted(found, key=lambda key: key not in own):
        value = found[key].value
        expected = DOCUMENTED.get(key, found[key].type) or _kept(standard.get(key))
        # verl leaves many keys null whatever their type says.
        if expected is None or (value is None and key not in DOCUMENTED):
            continue
        try:
            TypeAdapter(expected, config=ConfigDict(strict=True)).validate_python(value)
        except ValidationError:
            raise SettingsError(key, f"{key} is {shown(value)}; it must be {kind(expected).sentence}.") from None
    for key, (allowed, reason) in REFUSED.items():
        if key in found and found[key].value != allowed:
            raise SettingsError(key, f"{key} is {shown(found[key].value)}: {reason}; leave it {shown(allowed)}.")


def _kept(default: Leaf | None) -> Any:
    value = default.value if default else None
    return bool if isinstance(value, bool) else float if isinstance(value, int | float) else None


def verl_folder() -> Path:
    """The folder of the installed verl, found without importing it."""
    spec = find_spec("verl")
    if spec is None or spec.origin is None:
        raise LaunchError("verl is not installed in this environment: run `bash install.sh` and activate it.")
    return Path(spec.origin).parent


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every key of a configuration that does not hold a block."""
    types = field_types(str(tree.get("_target_", "")).rsplit(".", 1)[-1])
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", Leaf(value, types.get(key))


@functools.cache
def field_types(name: str) -> Mapping[str, Any]:
    """The scalar fields of verl's dataclass of that name, inherited ones included; {} for an unknown one."""
    definition = _dataclasses().get(name)
    if definition is None:
        return {}
    found: dict[str, Any] = {}
    for base in definition.bases:
        found.update(field_types(ast.unparse(base)))
    for line in definition.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            scalar = ast.unparse(line.annotation).removeprefix("Optional[").removesuffix("]").removesuffix(" | None")
            found[line.target.id] = _SCALARS.get(scalar)
    return {name: annotation for name, annotation in found.items() if annotation is not None}


@functools.cache
def _dataclasses() -> Mapping[str, ast.ClassDef]:
    files = [file for folder in _CONFIGURATIONS for file in sorted((verl_folder() / folder).glob("*.py"))]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    return {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
