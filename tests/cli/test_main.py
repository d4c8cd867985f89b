"""The command `seal`: what it lists, what it loads, and how it refuses."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from seal import __version__
from seal.cli import main
from seal.cli.main import app, commands, execute, load
from seal.cli.train import split
from seal.system import exits
from seal.system.paths import HOME

COMMANDS = commands()


def test_help_names_every_command_and_imports_none():
    script = f"import sys; sys.argv[1:] = ['--help']; from seal.cli.main import main; main(); print({list(COMMANDS)!r})"
    heavy = "print([name for name in ('torch', 'hydra', 'omegaconf', 'fastapi') if name in sys.modules])"
    loaded = "print([name for name in sys.modules if name.startswith('seal.cli.') and name != 'seal.cli.main'])"
    command = [sys.executable, "-c", f"{script}; {heavy}; {loaded}"]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120, check=True)
    *text, _, heavy_modules, loaded_modules = done.stdout.splitlines()
    assert all(any(f"│ {name}" in line for line in text) for name in COMMANDS)
    assert (heavy_modules, loaded_modules) == ("[]", "[]")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_resolves(name):
    command = load(name)
    assert command.help
    assert not {"install_completion", "show_completion"} & {parameter.name for parameter in command.params}


def test_the_version_is_the_packages():
    settings = tomllib.loads((HOME / "pyproject.toml").read_text())
    assert settings["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "seal.__version__"}
    assert settings["project"]["scripts"]["seal"] == "seal.cli.main:main"
    assert CliRunner().invoke(app, ["--version"]).output == f"seal {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("trian",), "Did you mean 'train'"),
        (("train",), "name a recipe"),
        (("train", "exp/SEAL.yaml", "--gpu"), "--gpu"),
        (("train", "exp/SEAL.yaml", "exp/quickstart.yaml"), "exp/SEAL.yaml and exp/quickstart.yaml are two recipes"),
        (("train", "--conf", "exp/SEAL.yaml", "a=1", "exp/quickstart.yaml"), "are two recipes"),
        (("train", "data.train_batch_size=8"), "name a recipe"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(arguments, named, capsys):
    assert execute(typer.main.get_command(app), arguments, "seal") == exits.USAGE
    said = capsys.readouterr()
    assert said.out == "" and named in said.err and len(said.err.splitlines()) == 1


def test_a_recipe_may_follow_its_changes():
    assert split(["seal.seed=1", "exp/q.yaml", "a=2"], None) == (Path("exp/q.yaml"), ("seal.seed=1", "a=2"))


def test_a_reader_that_has_gone_ends_no_launch(tmp_path):
    """Ctrl-C ends `| tee` too, while the run saves its checkpoint."""
    script = "from seal.cli.train import console as c; [c().print('x' * 99) for _ in range(2_000)]; open('on', 'w')"
    command = f'{sys.executable} -c "{script}" | head -c 1'
    env = {**os.environ, "PYTHONPATH": str(HOME)}
    subprocess.run(command, shell=True, cwd=tmp_path, env=env, capture_output=True, timeout=120, check=True)
    assert (tmp_path / "on").exists()


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("train", "exp/quickstart.yaml", "--print-config")])
def test_an_output_without_room_is_one_sentence(arguments):
    command = [sys.executable, "-m", "seal.cli", *arguments]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, cwd=HOME, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False
        )
    assert (done.returncode, done.stderr.count("\n"), "the output" in done.stderr) == (exits.REFUSED, 1, True)


def test_an_env_file_that_is_not_utf8_is_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / ".env").write_bytes(b"X=\xff\n")
    monkeypatch.setattr(main, "HOME", tmp_path)
    assert execute(load("stats"), ["--help"], "seal stats") == exits.USAGE
    said = capsys.readouterr().err
    assert said.startswith(f"seal stats: {tmp_path}/.env ") and said.count("\n") == 1


def test_an_env_file_that_may_not_be_read_is_one_sentence(monkeypatch, capsys):
    def denied(_path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(main, "load_dotenv", denied)
    assert execute(load("stats"), ["--help"], "seal stats") == exits.USAGE
    assert capsys.readouterr().err.count("\n") == 1


def test_a_command_of_a_package_that_left_says_to_install_again(tmp_path):
    metadata = tmp_path / "stale-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stale\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[seal.commands]\ngone = shelf.gone:COMMANDS\n")
    paths = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{HOME}"}
    command = [sys.executable, "-m", "seal.cli"]
    gone = subprocess.run([*command, "gone"], env=paths, capture_output=True, text=True, timeout=120, check=False)
    assert gone.returncode == exits.USAGE and len(gone.stderr.splitlines()) == 1
    assert "shelf.gone:COMMANDS" in gone.stderr and "install.sh" in gone.stderr
    there = subprocess.run(
        [*command, "serve", "--help"], env=paths, capture_output=True, text=True, timeout=120, check=False
    )
    assert there.returncode == 0


def test_train_and_the_launcher_are_the_same_command(capsys):
    own = ("data.train_batch_size=5",)
    asked = (
        (sys.executable, "launcher.py", "--conf", "exp/quickstart.yaml", "--with-bfcl", "--", *own),
        (sys.executable, "-m", "seal.cli", "train", "exp/quickstart.yaml", "--with-bfcl", *own),
    )
    done = [subprocess.run(c, cwd=HOME, capture_output=True, text=True, timeout=120, check=False) for c in asked]
    assert {each.returncode for each in done} == {exits.REFUSED}
    assert execute(load("train"), [*own, "--conf", "exp/quickstart.yaml"], "seal train") == exits.REFUSED
    said = {each.stdout for each in done} | {capsys.readouterr().out}
    assert len(said) == 1 and "data.train_batch_size=5" in said.pop()


def test_an_interpreter_without_the_packages_says_what_to_run():
    command = [sys.executable, "-S", "launcher.py"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "bash install.sh" in done.stderr and "Traceback" not in done.stderr


def test_an_exit_code_is_passed_on(capsys):
    assert execute(load("train"), ["exp/none.yaml"], "seal train") == exits.REFUSED
    assert "There is no recipe exp/none.yaml" in capsys.readouterr().out
    assert execute(main.load("train"), ["--no-such"], "seal train") == exits.USAGE
