"""The step plan of a recipe as a table for people."""

from rich.table import Table

from seal.launch.plan import StepPlan


def table(plan: StepPlan, name: str) -> Table:
    """The plan for the console."""
    shown = Table(box=None, show_header=False, title=f"A training step of {name}")
    for what, amount in lines(plan):
        shown.add_row(what, amount)
    return shown


def lines(plan: StepPlan) -> list[tuple[str, str]]:
    """What a step holds, and how much of it."""
    size = f"{plan.packed:,} tokens: at most" if plan.packed else f"{plan.rows_per_micro_batch} rows:"
    waiting = "" if plan.in_flight == plan.rows else f" of {plan.rows}"
    per_engine = f"{-(-plan.in_flight // plan.engines)} per engine, which runs {plan.engine_slots} at a time"
    cut = ""
    if plan.packed is not None and plan.longest == plan.packed < min(plan.prompt + plan.response, plan.model):
        cut = " (cut there by actor_rollout_ref.actor.ppo_max_token_len_per_gpu)"
    return [
        ("trajectories", f"{plan.prompts} prompts x {plan.samples} samples = {plan.rows}"),
        ("devices", f"{plan.devices}: {plan.ranks} data-parallel ranks, {plan.engines} rollout engines"),
        ("in flight", f"{plan.in_flight}{waiting}, {per_engine}"),
        ("mini-batches", f"{plan.mini_batches} of {plan.rows // plan.mini_batches} trajectories"),
        ("optimizer steps", f"{plan.optimizer_steps}"),
        ("rows per rank", f"{plan.rows_per_rank * plan.mini_batches}, {plan.rows_per_rank} of each mini-batch"),
        ("micro-batches", f"of {size} {plan.most_micro_batches} on each rank"),
        ("tokens of a first prompt", f"{plan.prompt:,}"),
        ("tokens of a message", f"{plan.message:,}"),
        ("tokens after the prompt", f"{plan.response:,}"),
        ("tokens of the engine", f"{plan.model:,}"),
        ("tokens of a training row", f"{plan.longest:,}{cut}"),
    ]
