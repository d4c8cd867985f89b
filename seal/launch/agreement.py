"""Whether a running environment service speaks our protocol over the recorded benchmark data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from seal.launch.errors import LaunchError
from seal.paths import HOME

MEND = "stop it and let the launcher start one with --with-bfcl, or set env_service.env_url to another"


def require_agreement(url: str, version: Mapping[str, Any]) -> None:
    """LaunchError when the service at `url` is of another protocol or over other data than this checkout."""
    from env_service.protocol import PROTOCOL

    if version.get("protocol") != PROTOCOL:
        raise LaunchError(
            f"The environment service at {url} speaks protocol {version.get('protocol')} and this SEAL speaks "
            f"{PROTOCOL}: {MEND}."
        )
    package = json.loads((HOME / "data" / "manifest.json").read_text(encoding="utf-8"))["package"]
    if version["data_hash"] != package["data_hash"]:
        raise LaunchError(
            f"The environment service at {url} serves bfcl-eval {version.get('bfcl_eval')} with data "
            f"{version['data_hash'][:12]}, and data/manifest.json records {package['version']} with "
            f"{package['data_hash'][:12]}: {MEND} that has the recorded data."
        )
