"""The file of a certificate: one JSON object per line, compressed with gzip, each line bound to those before it.

A line is {"sha256": H, "record": {KIND: VALUE}}, where H is the sha256 of the
previous line's H and the record's text. So a changed, moved, missing or repeated
record is found where it is, and the last H, the certificate's digest, stands for
the whole content.
"""

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seal.system.files import replacing

VERSION = 2
"""The version of the format; a reader refuses others."""

LINE_BYTES = 1 << 26
"""No record is that long: the largest are dialogues of a few MB."""

_LINE = re.compile(rb'\{"sha256":"([0-9a-f]{64})","record":(.*)\}\n', re.DOTALL)
_KIND = re.compile(rb'\{"([a-z]+)":')


class Record(NamedTuple):
    """One record as it is in the file: its number from 0, its kind, text and hash, and whether that hash fits."""

    number: int
    kind: str
    text: bytes
    sha256: str
    intact: bool
    file: Path | str = ""

    @property
    def value(self) -> Any:
        """What the record holds; ValueError if it is not JSON."""
        try:
            return json.loads(self.text)[self.kind]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{self.file}: record {self.number} is not JSON ({error}), so the file was changed or damaged: copy it "
                "again, or have it made again (seal certify RUN)."
            ) from error


def write(records: Iterable[tuple[str, Any]], path: Path | str) -> str:
    """Write records, pairs of kind and value, in one move; the digest. The same records give the same bytes."""
    link = ""
    with replacing(path) as draft, draft.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        for kind, value in records:
            text = json.dumps({kind: value}, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
            link = _link(link, text)
            file.write(b'{"sha256":"%s","record":%s}\n' % (link.encode(), text))
    return link


def read(path: Path | str) -> Iterator[Record]:
    """The records of a file, in order; ValueError for a file that is not a certificate or is damaged."""
    link = ""
    try:
        with gzip.open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LINE_BYTES), b"")):
                match = _LINE.fullmatch(line)
                kind = match and _KIND.match(match[2])
                if match is None or kind is None:
                    raise ValueError(
                        f"{path} is not a certificate: line {number + 1} is not a record (seal certify RUN)."
                    )
                stated = match[1].decode()
                yield Record(number, kind[1].decode(), match[2], stated, _link(link, match[2]) == stated, path)
                link = stated
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is not a certificate, or it is damaged ({error}): copy it again.") from error


def _link(previous: str, text: bytes) -> str:
    return hashlib.sha256(previous.encode() + text).hexdigest()
