"""A run checks before it starts that the installation has its plugins."""

import pytest

from seal.training.main import check_registrations


def test_plugins_of_vllm_that_leave_ours_out_are_refused(monkeypatch):
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    check_registrations()
    monkeypatch.setenv("VLLM_PLUGINS", "lora_hf_hub_resolver,seal")
    check_registrations()
    monkeypatch.setenv("VLLM_PLUGINS", "lora_hf_hub_resolver")
    with pytest.raises(RuntimeError, match="leaves out SEAL's plugin: add seal to it"):
        check_registrations()
