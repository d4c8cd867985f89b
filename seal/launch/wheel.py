"""Where flash-attn's prebuilt wheel for one torch, CUDA and Python would be.

`python -m seal.launch.wheel requirements.txt cp311` prints the address for the
torch of a lock. Standard library only: a bundle for a machine without a network
is collected where nothing else is installed.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from pathlib import Path

VERSION = "2.8.3"
RELEASES = "https://github.com/Dao-AILab/flash-attention/releases/download"


@dataclass(frozen=True)
class Build:
    """What a prebuilt wheel must fit: torch and CUDA as `2.11.0`, `13.0`; the tag of Python as `cp311`."""

    torch: str
    cuda: str
    cxx11_abi: bool
    python: str
    machine: str = "linux_x86_64"

    @classmethod
    def installed(cls) -> Build:
        """That of this interpreter; RuntimeError where torch was built without CUDA."""
        import torch

        if torch.version.cuda is None:
            raise RuntimeError(
                f"torch {torch.__version__} was built without CUDA, and flash-attn needs CUDA: run `bash install.sh`."
            )
        return cls(
            torch=torch.__version__,
            cuda=torch.version.cuda,
            cxx11_abi=torch.compiled_with_cxx11_abi(),
            python=f"cp{sys.version_info.major}{sys.version_info.minor}",
            machine=f"linux_{platform.machine()}",
        )

    @classmethod
    def of_lock(cls, lock: Path, python: str) -> Build:
        """That of a lock's torch from PyPI, which has the new C++ ABI; CUDA is the lock's `cuda-toolkit`."""
        pins = dict(line.split("==") for line in lock.read_text(encoding="utf-8").split() if "==" in line)
        return cls(torch=pins["torch"], cuda=pins["cuda-toolkit"], cxx11_abi=True, python=python)

    def url(self) -> str:
        """Where the release page would hold the wheel for this build; it does not hold one for each."""
        torch = ".".join(self.torch.split("+")[0].split(".")[:2])
        cuda = self.cuda.split(".")[0]
        local = f"{VERSION}+cu{cuda}torch{torch}cxx11abi{str(self.cxx11_abi).upper()}"
        return f"{RELEASES}/v{VERSION}/flash_attn-{local}-{self.python}-{self.python}-{self.machine}.whl"


if __name__ == "__main__":
    print(Build.of_lock(Path(sys.argv[1]), sys.argv[2]).url())
