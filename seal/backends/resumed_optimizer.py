"""A resumed optimizer: the checkpoint gives its moments and its place in the schedule, the recipe its settings.

torch writes the settings of an optimizer and of its schedule beside their state, and loads both.
"""

from functools import wraps
from typing import Any

from torch.optim import Optimizer
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine


def _own_settings(optimizer: Optimizer, state: dict[str, Any]) -> dict[str, Any]:
    """The state to load, with each group's settings (lr, betas, weight decay, ...) as the optimizer has them now."""
    names = (*optimizer.defaults, "initial_lr")  # other entries of a group are not settings, such as a count of steps
    pairs = zip(state["param_groups"], optimizer.param_groups, strict=True)
    groups = [{**saved, **{name: own[name] for name in names}} for saved, own in pairs]
    return {**state, "param_groups": groups}


_load = FSDPEngine.load_checkpoint


@wraps(_load)  # its signature stays: tests/backends/internals.py reads it
def load_checkpoint(self: FSDPEngine, *args, **arguments) -> None:
    """verl's `load_checkpoint`; the recipe's settings hold from the next step."""
    if self.optimizer is None:
        return _load(self, *args, **arguments)
    schedule = self.lr_scheduler
    rates = list(schedule.base_lrs)
    hook = self.optimizer.register_load_state_dict_pre_hook(_own_settings)
    try:
        _load(self, *args, **arguments)
    finally:
        hook.remove()
    # The checkpoint's step once more, by the recipe's rate and schedule.
    schedule.load_state_dict({**schedule.state_dict(), "base_lrs": rates, "last_epoch": schedule.last_epoch - 1})
    schedule.step()


FSDPEngine.load_checkpoint = load_checkpoint
