"""A run over a Ray cluster of two nodes that was there before it and is there after it."""

import pytest
from ray.cluster_utils import Cluster

from seal.launch.cluster import look_at

SMALL = (
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.ppo_mini_batch_size=4",
    "actor_rollout_ref.rollout.n=4",
    "seal.data.val=[{split: eval, categories: [base], prefix_turns: [1], limit: 2}]",
    "trainer.total_training_steps=2",
    "trainer.test_freq=2",
    "trainer.save_freq=2",
)
NODE = {"num_cpus": 8, "num_gpus": 1, "object_store_memory": 200_000_000, "include_dashboard": False}

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Two Ray nodes, started elsewhere and without the environment of a run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    nodes = Cluster(initialize_head=True, head_node_args=NODE)
    nodes.add_node(**NODE)
    nodes.wait_for_nodes()
    monkeypatch.undo()
    yield nodes
    nodes.shutdown()


def test_it_joins_a_cluster_spreads_over_its_nodes_and_leaves_it_running(cluster, make_run):
    run = make_run(*SMALL, "trainer.nnodes=2", "actor_rollout_ref.rollout.agent.num_workers=2")
    done = run.finish(f"ray_kwargs.ray_init.address={cluster.address}", deadline_s=1800)
    assert done.returncode == 0, done.stdout
    steps = run.lines("seal_log/steps.jsonl")
    assert [step["step"] for step in steps] == [1, 2]
    assert all(step["logp_diff_max"] < 1e-4 and step["trajectories"] == 16 and not step["infra"] for step in steps)
    assert len(run.lines("validation_log/2.jsonl")) == 2
    shards = sorted(path.name for path in run.folder.glob("checkpoints/global_step_2/actor/model_world_size_2_*.pt"))
    assert len(shards) == 2
    assert run.leftovers() == []
    left = look_at(cluster.address)
    assert len(left.nodes) == 2 and not left.taken


def test_too_few_nodes_are_named(cluster, make_run):
    run = make_run("trainer.nnodes=4")
    done = run.finish(f"ray_kwargs.ray_init.address={cluster.address}")
    assert done.returncode == 1
    assert "trainer.nnodes=4" in done.stdout and "2 of 2 nodes" in done.stdout
