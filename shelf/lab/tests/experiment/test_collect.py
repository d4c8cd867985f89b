"""What the result of a run says of the code that made it."""

import subprocess

from shelf.lab.experiment.collect import changes_outside


def test_results_of_the_experiment_itself_are_no_change_of_the_code(tmp_path):
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@localhost", *arguments]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    results, code = tmp_path / "benchmarks" / "tiny" / "results.jsonl", tmp_path / "code.py"
    results.parent.mkdir(parents=True)
    results.write_text("{}\n")
    code.write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "Start")
    assert not changes_outside(git("diff", "HEAD"), "benchmarks/tiny")
    results.write_text("{}\n{}\ndiff --git a/code.py b/code.py\n")
    assert not changes_outside(git("diff", "HEAD"), "benchmarks/tiny")
    assert changes_outside(git("diff", "HEAD"), "benchmarks/ti"), "a folder whose name only begins alike is another one"
    code.write_text("x = 2\n")
    assert changes_outside(git("diff", "HEAD"), "benchmarks/tiny")
