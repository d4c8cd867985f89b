"""Seeds of the messages of a rollout."""

import zlib


def continued(seed: int, tokens: int) -> int:
    """The seed for the part of a message that is sampled after `tokens` tokens of prompt and message."""
    return zlib.crc32(f"{seed}/{tokens}".encode())
