"""The code that decides what a run computes, as one hash: a launch records it, `seal verify` compares it."""

from seal.system.files import file_sha256, json_hash
from seal.system.paths import HOME

METHOD = (
    "env_service",
    "seal/backends",  # log-probs, and the rows that an update skips
    "seal/data",
    "seal/method",
    "seal/records",
    "seal/rollout",
    "seal/settings",
    "seal/training",
)
"""The folders that decide what a run computes."""
SUFFIXES = (".py", ".json", ".toml", ".yaml")


def method_digest() -> str:
    """One hash over the names and the bytes of the method's files."""
    files = (file for name in METHOD for file in (HOME / name).rglob("*") if file.suffix in SUFFIXES and file.is_file())
    return json_hash({file.relative_to(HOME).as_posix(): file_sha256(file) for file in files})
