"""Write the tasks as one JSON file: `python -m env_service.environments.bfcl.processed FOLDER`.

For people and tools without the package, from which the service reads its data. /version reports the hash beside it.
"""

import sys
from pathlib import Path

from env_service.environments.bfcl.catalog import available_tools, data_hash, load_tasks, package_version
from seal.system.files import write_json, write_jsonl


def write(folder: Path) -> Path:
    """Write multi_turn_processed.jsonl and multi_turn_processed.source.json; return the path of the former."""
    path, tasks = folder / "multi_turn_processed.jsonl", load_tasks()
    rows = (
        {
            "id": task.id,
            "category": task.category,
            "scenario": task.scenario,
            "users": task.users,
            "involved_classes": task.involved_classes,
            "tools": [tool["name"] for tool in available_tools(task, 0)],
            "withheld": {str(turn): names for turn, names in task.withheld.items()},
            "initial_config": dict(task.initial_config),
            "reference": task.reference,
        }
        for task in tasks.values()
    )
    write_jsonl(rows, path)
    source = {"bfcl_eval": package_version(), "data_hash": data_hash(), "tasks": len(tasks)}
    write_json(source, folder / "multi_turn_processed.source.json")
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m env_service.environments.bfcl.processed FOLDER")
    sys.stdout.write(f"{write(Path(sys.argv[1]))}\n")
