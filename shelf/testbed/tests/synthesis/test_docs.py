"""docs/synthesis.md shows a task that is one."""

import re

from env_service.environments.bfcl.task_file import MadeTask
from seal.system.paths import HOME
from shelf.testbed.synthesis.verify import is_sound

PAGE = (HOME / "docs" / "synthesis.md").read_text(encoding="utf-8")


def test_the_example_of_the_page_is_a_sound_task():
    task = MadeTask.model_validate_json(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
    assert task.id == task.content_id() and is_sound(task.task)
    assert all(call in PAGE.split("```json")[0] for calls in task.demonstration for call in calls)
    assert set(MadeTask.model_fields) <= set(re.findall(r"`(\w+)`", PAGE.split("```json")[1]))
