"""Does a cue help a language model that reads no documents? `python -m benchmarks.undocumented MODEL FOLDER [MINUTES]`

A pretrained model learns the small policy's prompt, which names tools and none of their arguments. No lesson calls one
of the 31 tools in WITHHELD, so only a schema cue tells their arguments. FOLDER gets the model, the tasks of the gate
(need.jsonl: each calls such a tool; others.jsonl), the rollouts and the lifts: benchmarks/undocumented.md.
"""

import csv
import gzip
import random
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.reminders import playing
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.task_file import MadeTask, write_task_file
from seal.cli.train import console
from seal.launch.recipe import read_recipe
from seal.method.interface.cues import Omega
from seal.method.interface.evolve import permanent_cues
from seal.settings.interface import EvolveSettings
from seal.system.files import write_json
from shelf.lab.probe.measure import Policy, Question, gain
from shelf.lab.probe.rollouts import Job
from shelf.testbed.policy.chat import PROBED, ChatSettings, encode, learn, plays, require_chat_model
from shelf.testbed.policy.dialogue import PROMPT_MODE, drawn_omega, drawn_slip, reference_dialogue
from shelf.testbed.policy.warm_start import Encoded
from shelf.testbed.synthesis.grammar import Grammar
from shelf.testbed.synthesis.make import synthesise
from shelf.testbed.synthesis.sampler import SamplerSettings

WITHHELD = frozenset(
    (
        *("mention", "follow_user", "unfollow_user", "get_tweet", "get_user_tweets", "search_tweets"),
        *("get_tweet_comments", "get_user_stats", "add_contact", "search_messages", "edit_ticket"),
        *("withdraw_funds", "notify_price_change", "filter_stocks_by_price", "get_symbol_by_name"),
        *("gallon_to_liter", "setHeadlights", "displayCarStatus", "display_log", "adjustClimateControl"),
        *("setCruiseControl", "register_credit_card", "power", "percentage", "round_number"),
        *("si_unit_conversion", "imperial_si_conversion", "absolute_value", "max_value", "min_value", "sum_values"),
    )
)
"""The tools whose arguments no lesson of data/quickstart_policy names either."""
SHORT = SamplerSettings(turns={1: 0.5, 2: 0.5}, categories={"base": 1.0})
LESSONS, PROBE, GATE = 0, 1, 2
"""Seeds of the tasks."""
TASKS, SAMPLES = 64, 4
CHANGES = ("env_service.prompt_mode=compact", "actor_rollout_ref.rollout.max_num_seqs=128")


def tasks(seed: int, needed: bool) -> Iterator[MadeTask]:
    """Endless tasks of one or two requests that need one of the withheld tools, or none."""
    calls = BfclEnvironment().calls
    for made in synthesise(Grammar(), 10**9, seed, "train", SHORT):
        if needed != WITHHELD.isdisjoint(name for turn in calls(made.task) for name, _ in turn):
            yield made


def lessons(tokenizer, settings: ChatSettings, seed: int) -> Iterator[Encoded]:
    """Half of them plain, a quarter with cues, a quarter with a wrong call, its feedback and the corrected call."""
    rng = random.Random(seed)
    for made in tasks(seed, needed=False):
        kind = rng.choice(("plain", "plain", "cued", "corrected")) if settings.interface else "plain"
        omega, slip = None, None
        if kind == "corrected" and any("=" in call for calls in made.reference for call in calls):
            slip = drawn_slip(made.task, PROMPT_MODE, rng)
        if kind != "plain":
            omega = drawn_omega(slip and slip.label, rng)
        messages = reference_dialogue(made.task, PROMPT_MODE, omega, slip)
        if messages is not None and len((lesson := encode(tokenizer, messages, slip and slip.number)).ids) < 1_500:
            yield lesson


def teach(source: Path, out: Path, minutes: float) -> None:
    """Write the tasks, then the model."""
    require_chat_model(source)
    out.mkdir(parents=True)
    for name, needed in (("need", True), ("others", False)):
        write_task_file(islice(tasks(GATE, needed), TASKS), out / f"{name}.jsonl")
    settings = ChatSettings(lessons=6_000, minutes=minutes, dtype="bfloat16")
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    probed = [*islice(lessons(tokenizer, ChatSettings(interface=False), PROBE), PROBED)]
    before, losses = plays(model, probed), []

    def tell(step) -> None:
        losses.append(step.loss)
        if len(losses) % 100 == 0:
            console().print(f"{len(losses)} lessons, loss {sum(losses[-100:]) / 100:.3f}, {step.seconds:.0f} s")

    learn(model, lessons(tokenizer, settings, LESSONS), settings, tell)
    after = plays(model, probed)
    model.to(torch.bfloat16).save_pretrained(out / "model")
    tokenizer.save_pretrained(out / "model")
    for name, was, now in zip(("greedily", "at T = 1"), before, after, strict=True):
        console().print(f"plays other tasks as their references {name}: {was:.0%} before, {now:.0%} after")


def gate(out: Path) -> None:
    """Play the tasks plain, with the cue that names required arguments, and with every cue that is always on."""
    arms = {"schema_required": ["schema_required"], "always on": permanent_cues(EvolveSettings())}
    changes = [*CHANGES, f"actor_rollout_ref.model.path={(out / 'model').resolve()}"]
    lifts = []
    for name in ("need", "others"):
        mixture = f"seal.data.train.mixture=[{{tasks: {(out / f'{name}.jsonl').resolve()}}}]"
        recipe = read_recipe(Path("exp/pretrained_cpu.yaml"), [*changes, mixture])
        rows = recipe.rows.train
        with playing(recipe, out / "model", out) as rollouts:
            jobs = [Job(n, sample) for n in range(len(rows)) for sample in range(SAMPLES)]
            plain = rollouts(f"{name}, plain", jobs)
            cued = {
                arm: rollouts(f"{name}, {arm}", [job._replace(omega=Omega.of(cues)) for job in jobs])
                for arm, cues in arms.items()
            }
        policy = Policy(str(out / "model"), recipe.config.actor_rollout_ref.rollout.temperature)
        for arm, some in cued.items():
            asked = Question(arm, "", 1.0, {n: Omega.of(arms[arm]) for n in range(len(rows))})
            lifts.append({"tasks of": name} | gain(asked, rows, plain, some, policy.transfer))
        with gzip.open(out / f"{name}.csv.gz", "wt", encoding="utf-8", newline="") as file:
            write = csv.writer(file)
            write.writerow(("arm", "task", "scenario", "sample", "passed", "replayed", "tokens in"))
            for arm, some in {"plain": plain, **cued}.items():
                for job, record, _, lesson in (each for n in sorted(some) for each in some[n] if each.record.usable):
                    facts = int(record.passed), int(lesson is not None), record.prompted
                    write.writerow((arm, record.task_id, record.scenario, job.sample, *facts))
    write_json(lifts, out / "lifts.json")
    for row in lifts:
        console().print(row)


def main(source: Path, out: Path, minutes: str = "50") -> None:
    """Teach, unless the model is there; then the gate."""
    if not (out / "model").exists():
        teach(source, out, float(minutes))
    gate(out)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]), *sys.argv[3:])
