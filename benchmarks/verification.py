"""How fast `seal verify` checks a certificate: `python -m benchmarks.verification FILE`."""

import argparse
import os
import time
from pathlib import Path

from seal.certificate.verify import verify


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="a certificate (seal certify RUN)")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    began, before = time.perf_counter(), os.times()
    found = verify(arguments.file, processes=arguments.processes)
    seconds, after = time.perf_counter() - began, os.times()
    if not found.holds:
        raise SystemExit(str(found.disagreements[0]))
    own = after.user + after.system - before.user - before.system
    others = after.children_user + after.children_system - before.children_user - before.children_system
    number, size = found.trajectories, arguments.file.stat().st_size
    print(f"{number:,} trajectories, {size / 1e6:.1f} MB, {arguments.processes} processes: {seconds:.1f} s")
    print(f"{number / seconds:.0f} trajectories/s; processor time per trajectory: {1000 * own / number:.2f} ms here, ")
    print(f"{1000 * others / number:.2f} ms in the replaying processes, which includes their start")


if __name__ == "__main__":
    main()
