"""An environment whose users a model can play: a bag, and wishes about it."""

from collections.abc import Sequence

from env_service.environments.base import Document
from env_service.environments.kit.environment import ToolEnvironment
from env_service.environments.kit.tasks import Check, ToolTask, UserPart
from env_service.environments.kit.worlds import MethodWorld, ToolError
from seal.method.diagnosis.evidence import CallEvidence

WISHES = {"errand-0": ("milk", "tea"), "errand-1": ("salt", "rice"), "errand-2": ("soap", "figs")}
SECRET = "Nobody may hear that your purse is empty"
ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
NOTHING = {"type": "object", "properties": {}}


class Bag(MethodWorld):
    """What was put into a bag, and what its user has in the purse."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.items: list[str] = []
        self.wanted = wanted

    def tool_add(self, item: str) -> str:
        if not item:
            raise ToolError("the item needs a name.")
        self.items.append(item)
        return f"{item} is in the bag."

    def tool_shake(self) -> str:
        self.items.append("dust")
        return "The bag is shaken."

    def check(self, turn: int, calls: Sequence[CallEvidence]) -> Check:
        return Check(state_match=self.items == list(self.wanted[: turn + 1]))


class Errands(ToolEnvironment):
    """Put two items into a bag, one after the other. The user can shake it, which spoils it."""

    name = "errands"
    writes = frozenset({"add"})
    rule = "No item is on both sides."

    def load(self) -> Sequence[ToolTask]:
        return [
            ToolTask(
                id=task,
                category="bag",
                side="eval" if task == "errand-2" else "train",
                group=task,
                users=tuple(f"Add {item}." for item in items),
                reference=tuple((("add", {"item": item}),) for item in items),
                data=items,
            )
            for task, items in WISHES.items()
        ]

    def tools(self, task: ToolTask) -> Sequence[Document]:
        return ({"name": "add", "description": "Put an item into the bag.", "parameters": ITEM},)

    def world(self, task: ToolTask) -> Bag:
        return Bag(task.data)

    def user(self, task: ToolTask) -> UserPart:
        wishes = "\n".join(f"- {item} in my bag" for item in task.data)
        shake = {"name": "shake", "description": "Shake your bag.", "parameters": NOTHING}
        return UserPart(f"You talk to a helper.\n{wishes}\n{SECRET}. Say ###STOP### at the end.", tools=(shake,))

    def data_hash(self) -> str:
        return "errands-1"


class Mixed(Errands):
    """The same bag; the user of the first task is not for a model."""

    name = "mixed"

    def user(self, task: ToolTask) -> UserPart | None:
        return None if task.id == "errand-0" else super().user(task)
