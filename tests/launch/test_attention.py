"""A missing flash-attn costs speed and nothing else: CUDA recipes fall back to sdpa, and say so."""

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from seal.launch import attention, flash_attn
from seal.launch.attention import FALLBACK, FLASH, KEY
from seal.launch.errors import LaunchError
from seal.launch.flash_attn import compilers
from seal.launch.recipe import compose_recipe
from seal.launch.wheel import VERSION, Build
from seal.paths import HOME

SEAL = HOME / "exp" / "SEAL.yaml"


@pytest.fixture(scope="module")
def problem():
    """Why flash-attn cannot be imported here; these tests are for machines without it."""
    found = attention.flash_attn_problem()
    if found is None:
        pytest.skip("flash-attn is installed here, so that nothing falls back")
    return found


def test_a_cuda_recipe_falls_back_and_says_why(problem):
    config = compose_recipe(SEAL, [])
    assert OmegaConf.select(config, KEY) == FLASH
    warning = attention.fall_back(config)
    assert OmegaConf.select(config, KEY) == FALLBACK
    assert problem in warning and "seal.launch.flash_attn" in warning
    # Packed batches stay: verl packs without flash-attn too.
    assert config.actor_rollout_ref.model.use_remove_padding


def test_sequence_parallelism_cannot_fall_back(problem):
    config = compose_recipe(SEAL, ["actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"])
    with pytest.raises(LaunchError, match="ulysses_sequence_parallel_size=2"):
        attention.fall_back(config)


def test_what_asks_for_something_else_is_left_alone():
    for recipe, overrides in ((HOME / "exp" / "quickstart.yaml", []), (SEAL, [f"{KEY}=eager"])):
        config = compose_recipe(recipe, overrides)
        before = OmegaConf.to_container(config)
        assert attention.fall_back(config) is None
        assert OmegaConf.to_container(config) == before


def test_the_wheel_is_named_as_the_release_page_names_it():
    build = Build(torch="2.8.0+cu128", cuda="12.8", cxx11_abi=True, python="cp312")
    assert build.url() == (
        f"https://github.com/Dao-AILab/flash-attention/releases/download/v{VERSION}/"
        f"flash_attn-{VERSION}+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    )
    locked = Build.of_lock(HOME / "requirements.txt", "cp311")
    assert locked.url() == Build(torch="2.11.0", cuda="13.0", cxx11_abi=True, python="cp311").url()
    assert "cu13torch2.11cxx11abiTRUE-cp311" in locked.url()


def test_compilers_fit_the_cores_and_the_memory():
    gib = 1 << 30
    assert compilers(cores=64, free_bytes=90 * gib) == 10
    assert compilers(cores=4, free_bytes=600 * gib) == 4
    assert compilers(cores=4, free_bytes=gib) == 1


def install(*arguments: str, python: str = sys.executable, **variables: str) -> subprocess.CompletedProcess:
    command = [python, "-m", "seal.launch.flash_attn", *arguments]
    options = {"env": {**os.environ, **variables}, "capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, cwd=HOME, check=False, **options)


def test_where_no_wheel_fits_the_installation_goes_on_with_a_warning(problem, tmp_path):
    done = install("--wheels", str(tmp_path))
    assert done.returncode == 0 and done.stderr == ""
    assert "warning: flash-attn is not installed" in done.stdout and FALLBACK in done.stdout


@pytest.fixture
def environment(tmp_path):
    """The interpreter of an environment that sees the packages of this one; nothing is installed into this one."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    packages = next((folder / "lib").glob("python3*")) / "site-packages"
    (packages / "theirs.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return str(folder / "bin" / "python")


SETUP = f"""
import os
from setuptools import setup

assert int(os.environ["MAX_JOBS"]) > 0 and os.environ["FLASH_ATTENTION_FORCE_BUILD"] == "TRUE"
setup(name="flash_attn", version="{VERSION}", packages=["flash_attn"], py_modules=["flash_attn_2_cuda"])
"""


def write_source(folder: Path) -> None:
    """A package in the shape of flash-attn's source, without what has to be compiled."""
    texts = {
        "setup.py": SETUP,
        "flash_attn/__init__.py": "",
        "flash_attn/bert_padding.py": "",
        "flash_attn_2_cuda.py": "",
    }
    with tarfile.open(folder / f"flash_attn-{VERSION}.tar.gz", "w:gz") as archive:
        for name, text in texts.items():
            entry = tarfile.TarInfo(f"flash_attn-{VERSION}/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


def test_the_source_in_a_folder_is_built_where_there_is_a_compiler(problem, environment, tmp_path):
    nvcc, folder = tmp_path / "cuda" / "bin" / "nvcc", tmp_path / "wheels"
    for path in (nvcc.parent, folder):
        path.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    write_source(folder)
    done = install("--wheels", str(folder), python=environment, CUDA_HOME=str(tmp_path / "cuda"), PYTHONPATH=str(HOME))
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stdout and f"flash-attn {VERSION} is installed" in done.stdout
    first, second = (
        done.stdout.index(words) for words in ("from a wheel in the folder", "from its source in the folder")
    )
    assert first < second
    command = [environment, "-c", "import flash_attn_2_cuda; print(flash_attn_2_cuda.__file__)"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert str(tmp_path) in found.stdout


def test_without_a_compiler_a_folder_s_source_is_not_tried(monkeypatch, tmp_path):
    monkeypatch.setattr(flash_attn, "has_nvcc", lambda: False)
    ((_, arguments, jobs),) = flash_attn.ways(str(tmp_path))
    assert jobs == 0 and "--only-binary" in arguments and "--no-index" in arguments


def test_a_wrong_number_of_compilers_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(flash_attn, "has_nvcc", lambda: True)
    for wrong in ("many", "0", "-1"):
        monkeypatch.setenv("MAX_JOBS", wrong)
        with pytest.raises(RuntimeError, match=f"MAX_JOBS={wrong} "):
            flash_attn.ways(str(tmp_path))
    monkeypatch.setenv("MAX_JOBS", "3")
    assert [jobs for *_, jobs in flash_attn.ways(str(tmp_path))] == [0, 3]


def test_a_torch_without_cuda_is_named(problem):
    import torch

    if torch.version.cuda is not None:
        pytest.skip("torch was built for CUDA here")
    done = install()
    assert done.returncode == 1 and "built without CUDA" in done.stdout and "Traceback" not in done.stderr
