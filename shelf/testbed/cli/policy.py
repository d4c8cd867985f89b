"""`seal policy`: teach a model tool calls, adapt a policy to an environment."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from seal.cli.commands import option, refusing
from seal.system.paths import HOME

app = typer.Typer(
    help="Teach a model tool calls, or adapt a policy to an environment.", no_args_is_help=True, add_completion=False
)
QUICKSTART = HOME / "data" / "quickstart_policy"


@app.command("warm-start")
def warm_start(
    model: Annotated[Path, option("The pretrained model to start from.", "DIR")],
    out: Annotated[Path, option("The folder to write, which must not hold anything.", "DIR")],
    lessons: Annotated[int, option("The most dialogues to learn from.", least=1)] = 1_000,
    minutes: Annotated[float, option("The most minutes to learn.", least=0.1)] = 60.0,
    lr: Annotated[float, option("Peak learning rate.")] = 3e-4,
    prompt_mode: Annotated[str, option("Prompt and parser.")] = "bfcl_qwen_fc",
    dtype: Annotated[
        Literal["float32", "bfloat16"], option("Of matrix products; bfloat16 is fast where `lscpu` lists avx512_bf16.")
    ] = "float32",
    seed: int = 0,
    threads: Annotated[int, option("CPU threads; one is best beside other work.", least=1)] = 1,
) -> None:
    """Teach a pretrained model tool calls, in its own chat template, with synthesised tasks of the training side."""
    with refusing("seal policy warm-start"):
        import torch

        from env_service.environments.bfcl.formats import get_format
        from env_service.environments.kit.tool_calls import ToolCalls
        from shelf.testbed.policy.chat import ChatSettings, teach

        torch.set_num_threads(threads)
        if isinstance(get_format(prompt_mode), ToolCalls):
            raise ValueError(f"--prompt-mode {prompt_mode} has no text for calls to teach: name another.")
        settings = ChatSettings(lessons, minutes, lr, seed=seed, prompt_mode=prompt_mode, dtype=dtype)
        losses = []

        def tell(step) -> None:
            losses.append(step.loss)
            if len(losses) % 10 == 0:
                typer.echo(f"{len(losses):>6} lessons  loss {sum(losses[-10:]) / 10:.3f}  {step.seconds:.0f} s")

        before, after = teach(model, out, settings, tell)
    typer.echo(f"{out}: {len(losses)} lessons")
    for name, was, now in zip(("greedily", "at T = 1"), before, after, strict=True):
        typer.echo(f"plays other tasks as their references {name}: {was:.0%} before, {now:.0%} after")


@app.command()
def adapt(
    environment: Annotated[str, typer.Argument(help="The environment's name.", show_default=False)],
    out: Annotated[Path, option("The folder to write, which must not hold anything.", "DIR")],
    source: Annotated[Path, option("The policy to start from.", "FOLDER")] = QUICKSTART,
    passes: Annotated[float, option("Stop at this mean probability of a training reference.")] = 0.5,
    lessons: Annotated[int, option("The most dialogues to learn from.", least=1)] = 1_000,
    seed: int = 0,
    threads: Annotated[int, option("CPU threads; one is best beside other work.", least=1)] = 1,
) -> None:
    """Make a start policy for your own environment, from the references of its training tasks."""
    with refusing("seal policy adapt"):
        import torch

        from env_service.environments.registry import get_environment
        from shelf.testbed.policy.adapt import EVERY, AdaptSettings
        from shelf.testbed.policy.adapt import adapt as adapt_policy

        torch.set_num_threads(threads)

        def tell(step, passes: float) -> None:
            if (step.number + 1) % EVERY == 0:
                typer.echo(f"{step.number + 1:>6} lessons  loss {step.loss:.3f}  references played {passes:.0%}")

        settings = AdaptSettings(passes, lessons, seed=seed)
        made = adapt_policy(get_environment(environment), source, out, settings, tell)
    typer.echo(f"{out}: from {made.tasks} training tasks; it plays {made.passes:.0%} of their references.")
    if made.passes < passes:
        typer.echo(f"That is less than --passes {passes:g}: raise --lessons, or make the tasks shorter.")
