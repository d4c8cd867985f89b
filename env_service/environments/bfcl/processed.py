"""Write the tasks as one JSON file: `python -m env_service.environments.bfcl.processed FOLDER`.

The service itself reads the package's data; this file is for people and tools
that want the tasks without the package. The hash next to it is that of the
package's files, which /version and every result carry too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from env_service.environments.bfcl.catalog import available_tools, data_hash, load_tasks, package_version


def write(folder: Path) -> Path:
    """Write multi_turn_processed.jsonl and multi_turn_processed.source.json; return the path of the former."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "multi_turn_processed.jsonl"
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        for task in load_tasks().values():
            row = {
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
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    source = {"bfcl_eval": package_version(), "data_hash": data_hash(), "tasks": len(load_tasks())}
    (folder / "multi_turn_processed.source.json").write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m env_service.environments.bfcl.processed FOLDER")
    sys.stdout.write(f"{write(Path(sys.argv[1]))}\n")
