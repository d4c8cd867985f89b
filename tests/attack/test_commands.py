"""No command line gives a traceback: the command works, or says in a sentence what is wrong."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator

from seal.cli.main import commands, load
from seal.system.paths import HOME

SEED = 0
LINES = 120
ODD = ("", "-1", "nan", "1e999", "9" * 30, "/dev/null", "/nowhere/x", "a=b", "\udcff", "x" * 5000, "--", "~", "../..")
AVOIDED = {"train", "serve", "view", "model", "policy"}
"""Those that train, serve until interrupted or ask a network: only their option parsers are tried, with --help."""
SECONDS = 8
RUNNER = """
import json, os, sys, tempfile, signal
from seal.cli.main import main
for number, line in enumerate(json.loads(sys.stdin.read())):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.setsid()
        signal.alarm({seconds})
        with open(f"{{number}}.err", "wb") as err, open(os.devnull, "r+b") as null:
            for stream, at in ((null, 0), (null, 1), (err, 2)):
                os.dup2(stream.fileno(), at)
        os.mkdir(str(number)); os.chdir(str(number))
        sys.argv = ["seal", *map(os.fsdecode, map(os.fsencode, line))]
        sys.exit(main())
    print(os.waitpid(child, 0)[1])
"""


def every_command(command, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], list]]:
    """The commands with their parameters, those of groups included."""
    if names := getattr(command, "commands", None):
        for name, inner in names.items():
            yield from every_command(inner, (*above, name))
    else:
        yield above, command.params


def lines() -> list[list[str]]:
    """Command lines with odd values, of every command in turn."""
    known = [item for name in commands() for item in every_command(load(name), (name,))]
    rng, made = random.Random(SEED), []
    for number in range(LINES):
        words, parameters = known[number % len(known)]
        line = [*words, *(("--out", "data") if words == ("data", "prepare") else ())]  # not the repository's
        for parameter in rng.sample(parameters, min(len(parameters), rng.randint(1, 4))):
            option = [name for name in parameter.opts if name.startswith("-")][:1]
            line += [*option, *([] if getattr(parameter, "is_flag", False) else [rng.choice(ODD)])]
        made.append([*words, "--help", *line[len(words) :]] if words[0] in AVOIDED else line)
    return made


def test_no_command_line_gives_a_traceback(tmp_path):
    tried = lines()
    runner = [sys.executable, "-c", RUNNER.format(seconds=SECONDS)]
    environment = {**os.environ, "PYTHONPATH": str(HOME), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        runner, input=json.dumps(tried), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900,
        check=True,
    )  # fmt: skip
    codes = [os.waitstatus_to_exitcode(int(status)) for status in done.stdout.split()]
    said = [(tmp_path / f"{number}.err").read_text(errors="replace") for number in range(len(tried))]
    wrong = [
        (line, code, text[-400:])
        for line, code, text in zip(tried, codes, said, strict=True)
        if "Traceback" in text or code not in (0, 1, 2, -14)  # 14: it works, for longer than it may here
    ]
    assert not wrong, [(" ".join(map(ascii, line))[:90], code, text[-120:]) for line, code, text in wrong]
    assert sum(code in (0, 1, 2) for code in codes) > 0.9 * LINES
