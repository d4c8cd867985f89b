"""The prompts on their way from verl's trainer to its agent loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tensordict import TensorDict
from verl.utils import tensordict_utils as tu


class PromptSender:
    """An agent-loop manager that adds what SEAL sends along with training prompts; validation prompts pass unchanged.

    Each training row gets `training` and, unless the interface is off, Omega_t.
    omega: returns Omega_t as JSON values, or None. expect: is told the uids of
    the training prompts in their order.
    """

    def __init__(
        self,
        manager: Any,
        omega: Callable[[], Mapping[str, Any] | None],
        expect: Callable[[Iterable[str]], None],
    ):
        self._manager = manager
        self._omega = omega
        self._expect = expect

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Start the rollouts of a batch of prompts; they end in TransferQueue."""
        if "validate" not in prompts:
            tu.assign_non_tensor_data(prompts, "training", True)
            omega = self._omega()
            if omega is not None:
                tu.assign_non_tensor_data(prompts, "omega", omega)
            self._expect(prompts["uid"])
        self._manager.generate_sequences(prompts)
