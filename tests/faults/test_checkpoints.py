"""Disks that fill and files that break: whole checkpoints stay, and no run resumes from a damaged one."""

import itertools
import json
import os
import resource
import subprocess
import sys
import textwrap
import zipfile

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seal.launch.recipe import Recipe, read_recipe
from seal.launch.start import find_start
from seal.settings.run import CheckpointSettings
from seal.system.errors import LaunchError
from seal.system.paths import HOME
from seal.training.checkpoints import (
    FILES,
    SAVING,
    STATE_FILE,
    TRACKER,
    CheckpointError,
    Checkpoints,
    last_step,
    verify,
    whole_steps,
)
from tests.support.checkpoints import write_step

"""The step with which the resumed run would end."""
MODEL = "actor/model_world_size_1_rank_0.pt"

FILL = """
import sys
from pathlib import Path
from seal.settings.run import CheckpointSettings
from seal.training.checkpoints import CheckpointError, Checkpoints, verify, whole_steps
from tests.support.checkpoints import write_step
folder = Path(sys.argv[1])
checkpoints = Checkpoints(folder, CheckpointSettings(keep_last=9))
write_step(checkpoints, 1, numbers=20_000)
try:
    write_step(checkpoints, 2, numbers=int(sys.argv[2]))
except CheckpointError as error:
    print(error)
verify(folder / "global_step_1")
print(whole_steps(folder), sorted(path.name for path in folder.iterdir()), (folder / sys.argv[3]).read_text())
"""


def fill(prefix, folder, numbers, **options):
    folder.mkdir()
    command = [*prefix, sys.executable, "-c", textwrap.dedent(FILL), str(folder), str(numbers), TRACKER]
    done = subprocess.run(command, cwd=HOME, capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == 0, done.stderr
    error, left = done.stdout.strip().splitlines()
    assert left == f"[1] ['global_step_1', '{TRACKER}'] 1"
    return error


@pytest.mark.slow
@pytest.mark.fault(
    event="The disk fills while a checkpoint is written",
    user_sees="The checkpoint of step N could not be written (no space left); the last whole one; how to fix it",
    outcome="the run ends with code 5; the half-written one is removed, the earlier checkpoints stay whole",
)
def test_a_disk_that_fills_in_a_save(small_disk, tmp_path):
    folder = tmp_path / "disk"
    # Four times the size of the first: the check before the save lets it pass.
    error = fill((*small_disk, "1m", str(folder)), folder, 200_000)
    assert "The checkpoint of step 2 could not be written" in error
    assert "The last whole one is global_step_1: free disk space" in error


@pytest.mark.fault(
    event="A file of a checkpoint cannot be written completely (quota, limit)",
    user_sees="the same",
    outcome="the same",
)
def test_a_file_that_may_not_grow(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))

    error = fill((), tmp_path / "limited", 200_000, preexec_fn=limit)
    assert "The checkpoint of step 2 could not be written" in error


@pytest.mark.fault(
    event="The disk has no room for the next checkpoint",
    user_sees="The checkpoint of step N needs about X GiB; FOLDER has Y GiB free; the last whole one",
    outcome="the run ends with code 5 before it writes anything",
)
def test_a_disk_without_room_is_noticed_before_the_save(small_disk, tmp_path):
    folder = tmp_path / "disk"
    error = fill((*small_disk, "300k", str(folder)), folder, 20_000)
    assert "The checkpoint of step 2 needs about" in error and "free disk space" in error


def damage(path, kind):
    content = bytearray(path.read_bytes())
    if kind == "removed":
        path.unlink()
        return
    if kind == "cut short":
        del content[len(content) // 2 :]
    elif kind == "empty":
        content.clear()
    elif kind == "flipped bit":
        content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.fault(
    event="A file of the last checkpoint is missing, cut short or corrupt",
    user_sees="FILE has 900 bytes instead of 1800 (or: is missing, is corrupt), so global_step_N cannot be resumed "
    "from: resume from another one with --resume .../global_step_M",
    outcome="nothing starts; code 5",
)
@pytest.mark.parametrize("kind", ["removed", "cut short", "empty", "flipped bit"])
@pytest.mark.parametrize("name", [MODEL, "data.pt", STATE_FILE])
def test_a_damaged_file_is_named_with_the_fix(checkpoints, folder, name, kind):
    damage(folder / "global_step_2" / name, kind)
    with pytest.raises(CheckpointError) as raised:
        verify(folder / "global_step_2")
    assert str(folder / "global_step_2" / name) in str(raised.value)
    assert f"--resume {folder / 'global_step_1'}" in str(raised.value)
    verify(folder / "global_step_1")


@given(data=st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_changed_byte_is_noticed_or_changes_no_weight(checkpoints, folder, data):
    path = folder / "global_step_2" / MODEL
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    try:
        verify(folder / "global_step_2")
        assert torch.equal(torch.load(path)["weight"], torch.arange(2_000))
    except CheckpointError as error:
        assert str(path) in str(error)
    finally:
        path.write_bytes(content)


def test_a_changed_bit_in_the_table_of_a_files_parts_is_told_like_other_damage(checkpoints, folder):
    """A part that is said to be encrypted, compressed or longer, and tables that lie nowhere."""
    path, named = folder / "global_step_2" / MODEL, 0
    content = path.read_bytes()
    with zipfile.ZipFile(path) as parts:
        first, last = parts.start_dir, len(content)
    places = [*range(first + 8, first + 12), *range(first + 20, first + 28), *range(last - 22, last)]
    for place, bit in itertools.product(places, range(8)):
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        try:
            verify(folder / "global_step_2")
        except CheckpointError as error:
            named += str(path) in str(error)
    assert named > 8 * 8


@pytest.fixture
def config(tmp_path):
    return read_recipe(HOME / "exp" / "quickstart.yaml", [f"seal.run_dir={tmp_path}"]).config


@pytest.mark.fault(
    event="The tracker of the last checkpoint is empty, cut short or lost",
    user_sees="NAME continues after step N",
    outcome="the run resumes from the newest whole checkpoint",
)
@pytest.mark.parametrize("text", ["", "  \n", "x", "7", None])
def test_a_damaged_tracker_is_repaired(checkpoints, folder, config, text):
    (folder / TRACKER).unlink()
    if text is not None:
        (folder / TRACKER).write_text(text)
    start = find_start(Recipe.of(config), "auto")
    assert start.step == 2
    checkpoints.continue_from(folder / "global_step_2", start.step)
    assert (folder / TRACKER).read_text() == "2"


def test_a_damaged_last_checkpoint_stops_the_launch_and_an_earlier_one_starts_it(checkpoints, folder, config):
    damage(folder / "global_step_2" / MODEL, "cut short")
    with pytest.raises(LaunchError, match=r"--resume \S*global_step_1") as raised:
        find_start(Recipe.of(config), "auto")
    assert raised.value.code == 5
    start = find_start(Recipe.of(config), str(folder / "global_step_1"))
    assert start.step == 1 and start.settings["resume_from_path"] == str(folder / "global_step_1")


def test_damage_to_all_checkpoints_does_not_restart_the_run(checkpoints, folder, config):
    for step in (1, 2):
        damage(folder / f"global_step_{step}" / FILES, "removed")
    (folder / TRACKER).write_text("")
    with pytest.raises(LaunchError, match="none of them is whole"):
        find_start(Recipe.of(config), "auto")


def test_a_save_that_was_killed_leaves_no_checkpoint_and_is_cleared_by_the_next(checkpoints, folder):
    half = folder / SAVING / "global_step_3" / "actor"
    half.mkdir(parents=True)
    (half / "model_world_size_1_rank_0.pt").write_bytes(b"half")
    assert whole_steps(folder) == [1, 2] and last_step(folder) == 2
    write_step(checkpoints, 3)
    assert not (folder / SAVING).exists() and whole_steps(folder) == [2, 3]


def test_the_last_ones_and_the_best_one_are_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder, CheckpointSettings(keep_last=2, keep_best=True))
    for step, average in ((1, 0.2), (2, 0.5), (3, 0.5), (4, 0.1), (5, 0.0)):
        write_step(checkpoints, step)
        checkpoints.validated(step, average, 0.0)
        verify(folder / f"global_step_{step}")
    assert whole_steps(folder) == [2, 4, 5]
    assert json.loads((folder / "best.json").read_text()) == {
        "step": 2,
        "average": 0.5,
        "prefix_average": 0.0,
        "of": None,
        "folder": "global_step_2",
    }
    checkpoints.validated(5, 0.6, 0.0)
    assert whole_steps(folder) == [4, 5]


def test_averages_of_other_tasks_are_not_compared(tmp_path):
    checkpoints = Checkpoints(tmp_path, CheckpointSettings(keep_last=9))
    for step, average, of in ((1, 0.9, "ten"), (2, 0.3, "forty"), (3, 0.2, "forty"), (4, 0.4, "forty")):
        write_step(checkpoints, step)
        checkpoints.validated(step, average, 0.0, of)
        assert checkpoints.best.step == {1: 1, 2: 2, 3: 2, 4: 4}[step]


def test_without_keep_best_only_the_last_ones_are_kept(tmp_path):
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder, CheckpointSettings(keep_last=1, keep_best=False))
    for step in (1, 2, 3):
        write_step(checkpoints, step)
        checkpoints.validated(step, 1.0 / step, 0.0)
    assert whole_steps(folder) == [3]


def test_a_resume_from_an_earlier_step_supersedes_the_later_ones(tmp_path):
    folder = tmp_path / "checkpoints"
    checkpoints = Checkpoints(folder, CheckpointSettings(keep_last=3))
    for step in (2, 4, 6):
        write_step(checkpoints, step)
    checkpoints.validated(6, 0.9, 0.0)
    checkpoints.continue_from(folder / "global_step_2", 2)
    assert last_step(folder) == 2 and checkpoints.best is None
    assert whole_steps(folder) == [2, 4, 6], "nothing is removed before the next save"
    write_step(checkpoints, 4)
    assert whole_steps(folder) == [2, 4] and last_step(folder) == 4


def test_a_checkpoint_without_the_part_of_a_rank_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path, CheckpointSettings())
    with (
        pytest.raises(CheckpointError, match=r"rank 1 is not there.*trainer\.default_local_dir"),
        checkpoints.saving(1) as folder,
    ):
        (folder / "actor").mkdir()
        (folder / "actor" / "model_world_size_2_rank_0.pt").touch()
    assert os.listdir(tmp_path) == []
