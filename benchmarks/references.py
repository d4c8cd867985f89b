"""The control that uses only references: supervised training on a recipe's training tasks, without rollouts.

    python -m benchmarks.references RECIPE OUT SEED [KEY=VALUE ...]

It makes as many updates as the recipe's trainer, with its optimiser and as many tasks per update. The loss is the mean
over what the reference's messages say, under the plain prompt. OUT is a model's folder.
"""

import random
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, get_constant_schedule_with_warmup

from env_service.environments.registry import get_environment
from seal.data.rows import TaskRow
from seal.launch.recipe import Recipe, read_recipe
from shelf.authoring.runs import dialogue, play, said
from shelf.authoring.runs import reference_run as whole_run
from shelf.testbed.policy.chat import Encoded, encode


def lesson(recipe: Recipe, row: TaskRow, tokenizer: AutoTokenizer) -> Encoded:
    """The dialogue of a row's reference; ValueError if the reference does not pass."""
    environment, mode = get_environment(row.environment), recipe.service.mode(row.environment)
    run = whole_run(environment, row.task_id, mode)
    if row.turns > 0:
        calls = environment.reference(row.task_id)[: row.turns]
        run = replace(run, messages=said(environment, calls, mode), params={**run.params, "turns": row.turns})
    answers = play(environment, run)
    if not answers[-1]["valid"]:
        raise ValueError(f"The reference of {row.task_id} does not pass.")
    return encode(tokenizer, dialogue(run.messages, answers))


def train(recipe: Recipe, out: Path, seed: int) -> list[float]:
    """Write the trained policy; return the loss of each update, in nats per token."""
    config, actor = recipe.config, recipe.config.actor_rollout_ref.actor
    source = config.actor_rollout_ref.model.path
    model, tokenizer = AutoModelForCausalLM.from_pretrained(source), AutoTokenizer.from_pretrained(source)
    lessons = [lesson(recipe, row, tokenizer) for row in recipe.rows.train]
    optim = actor.optim
    adam = torch.optim.AdamW(model.parameters(), optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay)
    schedule = get_constant_schedule_with_warmup(adam, optim.lr_warmup_steps)
    updates = config.trainer.total_training_steps * config.data.train_batch_size // actor.ppo_mini_batch_size
    rng, waiting, losses = random.Random(seed), [], []
    for _ in range(updates):
        while len(waiting) < actor.ppo_mini_batch_size:
            waiting += rng.sample(lessons, len(lessons))
        batch = [waiting.pop(0) for _ in range(actor.ppo_mini_batch_size)]
        own = sum(sum(each.spoken) for each in batch)
        total = 0.0
        for each in batch:
            ids, spoken = torch.tensor([each.ids]), torch.tensor(each.spoken[1:])
            logits = model(ids[:, :-1]).logits[0][spoken]
            loss = functional.cross_entropy(logits.float(), ids[0, 1:][spoken], reduction="sum") / own
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), actor.optim.clip_grad)
        adam.step()
        schedule.step()
        adam.zero_grad()
        losses.append(total)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return losses


if __name__ == "__main__":
    recipe = read_recipe(Path(sys.argv[1]), sys.argv[4:])
    for name in recipe.environments:
        for path in recipe.task_files:
            get_environment(name).load_task_file(str(path))
    losses = train(recipe, Path(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(f"{len(losses)} updates, loss {losses[0]:.3f} to {sum(losses[-10:]) / 10:.3f}: {sys.argv[2]}\n")
