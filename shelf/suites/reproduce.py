"""What the paper reports for one model, measured suite by suite; one that cannot run does not stop the others."""

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seal.data.selection import Selection, selected_rows
from seal.records.validation import read_log
from seal.rollout.env_client import EnvironmentFault
from seal.system.errors import LaunchError
from shelf.suites.attempts import Attempts, Progress
from shelf.suites.bfcl import benchmark
from shelf.suites.bfcl.episode import EpisodeSettings
from shelf.suites.bfcl.journal import SETTINGS
from shelf.suites.bfcl_v4.categories import MEMORY, WEB_SEARCH
from shelf.suites.bfcl_v4.run import BfclV4
from shelf.suites.bfcl_v4.run import evaluate as evaluate_bfcl_v4
from shelf.suites.chat import EndpointRefused
from shelf.suites.endpoint import Model, Served
from shelf.suites.records import ItemRecord, SuiteHead, read_results, write_results
from shelf.suites.tau2.domains import WITH_USER
from shelf.suites.tau2.run import Tau2
from shelf.suites.tau2.run import evaluate as evaluate_tau2

FAULTS = (EndpointRefused, EnvironmentFault, LaunchError, ValueError, OSError)
"""What ends one suite and leaves the others to run."""

Say = Callable[[str], None]
Bar = Callable[[str], AbstractContextManager[Progress]]


@dataclass(frozen=True)
class Reproduction:
    """One model, and how each suite plays it. tokenizer: a folder, which bfcl-v4 needs."""

    model: Model
    out: Path
    tokenizer: Path | None
    handler: str
    prompt_mode: str
    user: Served | None
    scheme: str
    limit: int | None
    concurrency: int
    env_url: str
    envs: Path | None
    attempts: Attempts


class Found(NamedTuple):
    """The results of the suites that ran, and by suite why another could not."""

    records: tuple[ItemRecord, ...]
    heads: Mapping[str, SuiteHead]
    failed: Mapping[str, str]


def reproduce(plan: Reproduction, say: Say, bar: Bar) -> Found:
    """Run what is missing of every suite; bar makes a progress bar with a title.

    ValueError if the model cannot be served.
    """
    failed = {}
    with plan.model.served(plan.out / "vllm.log") as served:
        for name, run in SUITES.items():
            try:
                with bar(name) as on_progress:
                    run(plan, served, say, on_progress)
            except FAULTS as error:
                failed[name] = str(error).rstrip(".")
                say(f"{name} did not run: {error}")
    results = [read_results(plan.out / name) for name in SUITES if name not in failed]
    records = tuple(item for each in results for item in each.items)
    return Found(records, {head.suite: head for each in results for head in each.heads}, failed)


def differences(plan: Reproduction, heads: Mapping[str, SuiteHead]) -> dict[str, str]:
    """By suite that ran, what is not as in the paper, or what the paper does not say."""
    limit = f"; only {plan.limit} items of each category" if plan.limit else ""
    sides = (
        "the release's ids" if plan.scheme == "released_ids" else "whole scenarios held out, unlike the release's ids"
    )
    notes = {
        "bfcl": lambda head: f"{sides}; bfcl-eval {head.version}",
        "bfcl-v4": lambda head: f"bfcl-eval {head.version}, prompts of {plan.handler}; the paper names no version",
        "tau2": lambda head: (
            f"{head.package} {head.version}, user {head.settings['user_model']}; the paper's may differ"
        ),
    }
    return {suite: notes[suite](head) + limit for suite, head in heads.items()}


def _bfcl(plan: Reproduction, served: Served, say: Say, on_progress: Progress) -> None:
    out = plan.out / "bfcl"
    rows = selected_rows(Selection.read({"split": "eval", "scheme": plan.scheme, "limit": plan.limit}))
    evaluation = benchmark.Evaluation(
        rows=rows,
        model=served.model,
        out=out,
        env_url=plan.env_url,
        base_url=served.base_url,
        episode=EpisodeSettings(plan.prompt_mode),
        concurrency=plan.concurrency,
    )
    done = 0

    def on_rollout(_record: object) -> None:
        nonlocal done
        done += 1
        on_progress(done, len(rows))

    for _ in range(plan.attempts.rounds):
        done = 0
        outcome = benchmark.evaluate(evaluation, lambda journal: None, on_rollout)
        if not outcome.failed or not served.answers_within(plan.attempts.wait_s):
            break
    recorded = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
    head = SuiteHead(
        suite="bfcl",
        model=served.model,
        package="bfcl-eval",
        version=recorded["bfcl_eval"],
        data_hash=recorded["data_hash"],
        settings={"prompt_mode": plan.prompt_mode, "scheme": plan.scheme},
    )
    write_results(out, head, [ItemRecord.of_trajectory(line) for line in read_log(outcome.log).lines])


def _bfcl_v4(plan: Reproduction, served: Served, say: Say, on_progress: Progress) -> None:
    if plan.tokenizer is None:
        raise ValueError("needs --tokenizer, a folder with the model's config.json and tokenizer")
    how = {"handler": plan.handler, "threads": plan.concurrency, "envs": plan.envs, "attempts": plan.attempts}
    suite = BfclV4(served, plan.tokenizer, plan.out / "bfcl-v4", MEMORY + WEB_SEARCH, plan.limit, **how)
    evaluate_bfcl_v4(suite, say, on_progress)


def _tau2(plan: Reproduction, served: Served, say: Say, on_progress: Progress) -> None:
    if plan.user is None:
        raise ValueError("needs a simulated user: give --user-base-url and --user-model")
    how = {"concurrency": plan.concurrency, "envs": plan.envs, "attempts": plan.attempts}
    suite = Tau2(served, plan.out / "tau2", plan.user, WITH_USER, limit=plan.limit, **how)
    evaluate_tau2(suite, say, on_progress)


SUITES = {"bfcl": _bfcl, "bfcl-v4": _bfcl_v4, "tau2": _tau2}
"""The paper's suites in the order in which they run."""
