"""BFCL V4 with the official `bfcl generate` and `bfcl evaluate`."""

import shutil
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seal.system.files import file_sha256, json_hash, write_json
from shelf.suites.attempts import Attempts, Progress
from shelf.suites.bfcl.journal import require_same_settings
from shelf.suites.bfcl_v4.categories import (
    CATEGORIES,
    MEMORY,
    VECTOR,
    Chain,
    Item,
    chains_for,
    missing_need,
    read_chains,
    read_items,
)
from shelf.suites.bfcl_v4.generated import Generated, cause_of
from shelf.suites.bfcl_v4.results import error_of, read_official, read_verdicts, seconds, tokens
from shelf.suites.endpoint import Served, without_proxy
from shelf.suites.environment import SuiteEnvironment
from shelf.suites.process import Deadlines, finish
from shelf.suites.records import ItemRecord, SuiteHead, write_results

SUITE = "bfcl-v4"
PACKAGE = "bfcl-eval"
HANDLER = "Qwen/Qwen3-8B-FC"
"""The tool's name for models that write calls as Qwen does: our prompt mode bfcl_qwen_fc."""

TOKENIZER_FILES = ("config.json", "tokenizer_config.json")
SCORING = Deadlines(total_s=3600.0)
CHOSEN = "test_case_ids_to_generate.json"


@dataclass(frozen=True)
class BfclV4:
    """An evaluation of one model.

    tokenizer: a folder with the model's config.json and tokenizer, from which the tool counts
    tokens. handler: the tool's name of a model that writes calls in the same way. limit: items
    of each category.
    """

    served: Served
    tokenizer: Path
    out: Path
    categories: Sequence[str] = CATEGORIES
    limit: int | None = None
    handler: str = HANDLER
    temperature: float = 0.001
    threads: int = 32
    envs: Path | None = None
    attempts: Attempts = field(default_factory=Attempts)

    def __post_init__(self) -> None:
        for name in TOKENIZER_FILES:
            if not (self.tokenizer / name).is_file():
                raise ValueError(f"{self.tokenizer} lacks {name}: name the folder of the model's tokenizer.")

    @property
    def root(self) -> Path:
        """The tool's BFCL_PROJECT_ROOT."""
        return self.out.resolve() / "official"

    def settings(self, environment: SuiteEnvironment, data: Path) -> dict[str, object]:
        """What results depend on beside the chosen items."""
        return {
            "model": self.served.model,
            "handler": self.handler,
            "temperature": self.temperature,
            "version": environment.version(PACKAGE),
            "data_hash": data_hash(data),
        }


def evaluate(suite: BfclV4, say: Callable[[str], None], on_progress: Progress) -> Path:
    """Generate and score what is missing; returns the folder of the results.

    Raises EndpointRefused if the endpoint cannot be asked at all, ValueError for what a user
    can fix.
    """
    skipped = {name: why for name in suite.categories if (why := missing_need(name))}
    for name, why in skipped.items():
        say(f"{name} is skipped: it {why}.")
    categories = [name for name in suite.categories if name not in skipped]
    if not categories:
        raise ValueError("Nothing is left to run.")
    suite.served.require()
    suite.served.require_listing()
    environment = suite_environment(categories, suite.envs)
    environment.install(say)
    data = environment.packages / "bfcl_eval" / "data"
    settings = suite.settings(environment, data)
    require_same_settings(suite.out, settings)

    items = [item for name in categories for item in read_items(data, name, suite.limit)]
    chains = [chain for name in categories if name in MEMORY for chain in _needed(data, name, items)]
    generated = Generated(suite.out, suite.root / "result", items, chains)
    _generate(suite, environment, categories, generated, on_progress)
    verdicts = _score(suite, environment, items, generated)

    records = [_record(item, generated, verdicts) for item in items]
    done = {name for name in categories if all(each.infra is None for each in records if each.category == name)}
    head = SuiteHead(
        suite=SUITE,
        model=suite.served.model,
        package=PACKAGE,
        version=str(settings["version"]),
        data_hash=str(settings["data_hash"]),
        settings={"handler": suite.handler, "temperature": suite.temperature},
        skipped=skipped,
        official=read_official(suite.root / "score", done if suite.limit is None else ()),
    )
    write_results(suite.out, head, records)
    return suite.out


def suite_environment(categories: Sequence[str], envs: Path | None = None) -> SuiteEnvironment:
    """The tool's environment; only memory_vector needs the large one."""
    if VECTOR in categories:
        return SuiteEnvironment("bfcl_v4_vector", ("bfcl_v4", "bfcl_v4_vector"), envs)
    return SuiteEnvironment("bfcl_v4", ("bfcl_v4",), envs)


def generate_command(
    suite: BfclV4, environment: SuiteEnvironment, categories: Sequence[str], chosen: bool
) -> list[str]:
    """The command line of `bfcl generate`; chosen: for the ids of its file instead of whole categories."""
    which = ["--run-ids"] if chosen else ["--test-category", ",".join(categories)]
    return [
        *(environment.program("bfcl"), "generate", "--model", suite.handler, *which),
        *("--skip-server-setup", "--local-model-path", suite.served.model),
        *("--temperature", str(suite.temperature), "--num-threads", str(suite.threads)),
    ]


def evaluate_command(suite: BfclV4, environment: SuiteEnvironment, categories: Sequence[str]) -> list[str]:
    """The command line of `bfcl evaluate`."""
    which = ["--test-category", ",".join(categories), "--partial-eval"]
    return [environment.program("bfcl"), "evaluate", "--model", suite.handler, *which]


def tool_variables(suite: BfclV4) -> dict[str, str]:
    """The environment variables through which the tool finds its folder and the endpoint."""
    url, key = suite.served.base_url.rstrip("/"), suite.served.key
    return {
        "BFCL_PROJECT_ROOT": str(suite.root),
        "REMOTE_OPENAI_BASE_URL": url,
        "REMOTE_OPENAI_API_KEY": key,
        "OPENAI_BASE_URL": url,
        "OPENAI_API_KEY": key,
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        **without_proxy(url),
    }


def data_hash(data: Path) -> str:
    """sha256 over the questions and answers of the tool's data folder."""
    files = [*data.glob("BFCL_v4_*.json"), *data.glob("possible_answer/*.json"), *data.glob("*/memory_*.json")]
    return json_hash({path.relative_to(data).as_posix(): file_sha256(path) for path in sorted(files)})


def _needed(data: Path, category: str, items: Sequence[Item]) -> list[Chain]:
    return chains_for(read_chains(data, category), [item for item in items if item.category == category])


def _generate(
    suite: BfclV4,
    environment: SuiteEnvironment,
    categories: Sequence[str],
    generated: Generated,
    on_progress: Progress,
) -> None:
    """Run the tool until nothing is missing, at most as often as is allowed."""
    _link_tokenizer(suite)
    total = len(generated.wanted)

    def progress() -> int:
        generated.collect()
        done = total - len(generated.missing)
        on_progress(done, total)
        return done + len(generated.errors)

    for _ in range(suite.attempts.rounds):
        generated.prepare()
        missing = generated.missing
        on_progress(total - len(missing), total)
        if not missing or not suite.served.answers_within(suite.attempts.wait_s):
            return
        if suite.limit is not None:
            by_category: dict[str, list[str]] = defaultdict(list)
            for identity in missing:
                by_category[_category(identity)].append(identity)
            write_json(by_category, suite.root / CHOSEN)
        finish(
            generate_command(suite, environment, categories, chosen=suite.limit is not None),
            log=suite.out / "generate.log",
            cwd=suite.root,
            env=tool_variables(suite),
            deadlines=suite.attempts.deadlines,
            progress=progress,
        )


def _score(
    suite: BfclV4, environment: SuiteEnvironment, items: Sequence[Item], generated: Generated
) -> Mapping[str, bool]:
    """The official verdict of every item that has an answer."""
    generated.prepare()
    scores = suite.root / "score"
    shutil.rmtree(scores, ignore_errors=True)
    answered: dict[str, list[str]] = defaultdict(list)
    for item in items:
        if item.id in generated.entries:
            answered[item.category].append(item.id)
    if not answered:
        return {}
    log = suite.out / "evaluate.log"
    command = evaluate_command(suite, environment, list(answered))
    problem = finish(command, log=log, cwd=suite.root, env=tool_variables(suite), deadlines=SCORING)
    verdicts: dict[str, bool] = {}
    try:
        for category, ids in answered.items():
            verdicts |= read_verdicts(scores, category, ids)
    except ValueError as error:
        raise ValueError(f"{error} (`bfcl evaluate` {problem or 'ended well'}; log: {log})") from error
    return verdicts


def _record(item: Item, generated: Generated, verdicts: Mapping[str, bool]) -> ItemRecord:
    known = {"suite": SUITE, "category": item.category, "item": item.id, "sample": 0, "cluster": item.cluster}
    entry = generated.entries.get(item.id)
    if entry is None:
        error = cause_of(item, generated)
        return ItemRecord(**known, score=0.0, infra=error.cause, infra_message=error.message)
    error = error_of(entry.value)
    used, written = tokens(entry.value)
    return ItemRecord(
        **known,
        score=float(verdicts[item.id]),
        stop=error.cause if error else "answered",
        input_tokens=used,
        output_tokens=written,
        seconds=seconds(entry.value),
    )


def _link_tokenizer(suite: BfclV4) -> None:
    """Put the tokenizer where its path below the tool's folder is the model's name.

    The tool sends the path of --local-model-path as the model's name.
    """
    place = suite.root / suite.served.model
    if not place.is_relative_to(suite.root) or ".." in place.parts or place == suite.root:
        raise ValueError(f"--model {suite.served.model} cannot be a path below a folder: serve it under another name.")
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        place.unlink()
    if place.exists():
        raise ValueError(f"{place} is in the way of the model's name: serve it under another name.")
    place.symlink_to(suite.tokenizer.resolve(), target_is_directory=True)


def _category(identity: str) -> str:
    """The category of an item or of a memory dialogue."""
    return identity.rsplit("_", 1)[0].removesuffix("_prereq")
