"""A machine without a network gets everything in pieces, and installs only from them."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
PIECE = 60 * 2**20


def bundle(*arguments: str, home: Path = HOME, **variables: str) -> subprocess.CompletedProcess:
    command = ["bash", str(home / "scripts" / "offline_bundle.sh"), *arguments]
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3600, check=False)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--cpu",), "--out"),
        (("--cpu", "--out", "{}", "--chunk-size", "many"), "--chunk-size many"),
        (("--cpu", "--out", "{}", "--python", "3.13"), "--python 3.13"),
        (("--rocm", "--out", "{}"), "--rocm"),
        (("--cpu", "--out", str(HOME)), "not empty"),
    ],
)
def test_a_wrong_option_is_named_in_one_sentence(tmp_path, arguments, named):
    done = bundle(*(argument.format(tmp_path / "bundle") for argument in arguments))
    assert done.returncode == 1 and done.stdout == ""
    assert named in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
@pytest.mark.parametrize("published", [True, False], ids=["a wheel", "no wheel"])
def test_a_bundle_holds_the_wheel_of_flash_attn_if_there_is_one(package_index, tmp_path, published):
    """With a lock of one small package, because the whole one is gigabytes."""
    home, out, wheel = tmp_path / "seal", tmp_path / "bundle", tmp_path / "flash_attn-2.8.3-py3-none-any.whl"
    (home / "scripts").mkdir(parents=True)
    shutil.copy(HOME / "scripts" / "offline_bundle.sh", home / "scripts")
    pins = (HOME / "requirements.txt").read_text().splitlines()
    (home / "requirements.txt").write_text(next(pin for pin in pins if pin.startswith("packaging==")) + "\n")
    if published:
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(
                "flash_attn-2.8.3.dist-info/METADATA", "Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.8.3\n"
            )
            archive.writestr(
                "flash_attn-2.8.3.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr("flash_attn-2.8.3.dist-info/RECORD", "")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = bundle("--cuda", "--out", str(out), "--python", version, home=home, FLASH_ATTN_WHEEL=str(wheel))
    assert done.returncode == 0, done.stderr
    assert (f"flash-attn: {wheel.name}" if published else "flash-attn: left out") in done.stdout
    pieces = b"".join(piece.read_bytes() for piece in sorted(out.glob("chunk.*")))
    with tarfile.open(fileobj=io.BytesIO(pieces)) as bundled:
        names = {name.removeprefix("wheels/") for name in bundled.getnames()}
    assert (wheel.name in names) == published and len(names) == 2 + published


@pytest.mark.slow
def test_what_a_bundle_holds_is_enough(tmp_path):
    out, copy = tmp_path / "bundle", tmp_path / "seal"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    done = bundle("--cpu", "--out", str(out), "--chunk-size", "60M", "--python", version)
    assert done.returncode == 0, done.stderr
    pieces = sorted(out.glob("chunk.*"))
    assert len(pieces) > 5 and all(piece.stat().st_size <= PIECE for piece in pieces)
    sums = dict(reversed(line.split()) for line in (out / "SHA256SUMS").read_text().splitlines())
    assert sums == {piece.name: hashlib.sha256(piece.read_bytes()).hexdigest() for piece in pieces}

    left_out = shutil.ignore_patterns(".git", ".venv", "experiments", "__pycache__", "*.parquet")
    shutil.copytree(HOME, copy, ignore=left_out)
    install = ["bash", str(out / "install_offline.sh")]
    # No index can be reached by name or by settings: what is installed came from the bundle.
    offline = {
        **os.environ,
        "PYTHON": sys.executable,
        "PYTHONPATH": "",
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "127.0.0.1,localhost",
    }
    options = {"cwd": copy, "env": offline, "capture_output": True, "text": True, "timeout": 3600, "check": False}
    done = subprocess.run(install, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    check = [copy / ".venv" / "bin" / "python", "-m", "shelf.operate.selfcheck"]
    subprocess.run(check, cwd=copy, capture_output=True, timeout=600, check=True)

    with pieces[-1].open("r+b") as piece:
        piece.write(b"damaged")
    done = subprocess.run(install, **options)
    assert done.returncode == 1 and pieces[-1].name in done.stdout + done.stderr
