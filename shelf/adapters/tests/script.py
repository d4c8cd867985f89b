"""Messages of a perfect model in some training tasks, one by one: the script of the adapters' tests."""

from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.formats import get_format
from env_service.environments.bfcl.splits import TRAIN_SCENARIOS
from env_service.environments.bfcl.tools import parse_reference
from seal.records.benchmark import CATEGORIES, task_id

TASKS = tuple(task_id(category, scenario) for category in CATEGORIES for scenario in TRAIN_SCENARIOS[:2])
DONE = "Done."


def script(prompt_mode: str = "bfcl_qwen_fc") -> dict[str, list[str]]:
    """The messages by task: one call each, and one without calls to end a turn."""
    render = get_format(prompt_mode).render_call
    return {
        name: [
            message
            for turn in load_tasks()[name].reference
            for message in (*(render(*parse_reference(call)) for call in turn), DONE)
        ]
        for name in TASKS
    }
