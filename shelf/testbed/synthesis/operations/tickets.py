"""Operations of TicketAPI."""

from typing import Any

from shelf.testbed.synthesis.operations.registry import Run, add, calling, logging_in, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TicketAPI"


add("ticket_login", CLASS, logging_in(CLASS, lambda own: own.current_user), 0.6)


@operation(CLASS, 0.4)
def ticket_logout(stage: Stage) -> Slots | None:
    if not stage.simulator(CLASS).current_user:
        return None
    stage.call("logout")
    stage.finished.add(CLASS)
    return {}


def _create(description: bool = False, priority: bool = False) -> Run:
    def run(stage: Stage) -> Slots:
        values = stage.values
        arguments: dict[str, Any] = {"title": values.title()}
        slots = {"t": Slot(arguments["title"], "text")}
        if description:
            arguments["description"] = values.text()
            slots["x"] = Slot(arguments["description"], "text")
        if priority:
            arguments["priority"] = values.integer(2, 5)
            slots["k"] = Slot(arguments["priority"])
        stage.created("ticket", stage.call("create_ticket", **arguments)["id"])
        return slots

    return run


add("create_title", CLASS, _create())
add("create_prio", CLASS, _create(priority=True))
add("create_desc", CLASS, _create(description=True))
add("create_full", CLASS, _create(description=True, priority=True))


def _ticket(stage: Stage, without: str = "") -> int | None:
    tickets = [ticket["id"] for ticket in stage.simulator(CLASS).ticket_queue if ticket.get("status") != without]
    last = stage.focus("ticket")
    return last if last in tickets and stage.values.chance(0.7) else stage.values.pick(tickets)


def _of_ticket(tool: str, without: str = "") -> Run:
    def run(stage: Stage) -> Slots | None:
        ticket = _ticket(stage, without)
        if ticket is None:
            return None
        stage.call(tool, ticket_id=ticket)
        return {"w": stage.mention("ticket", ticket)}

    return run


add("get_ticket", CLASS, _of_ticket("get_ticket"))
add("close_ticket", CLASS, _of_ticket("close_ticket", without="Closed"))


@operation(CLASS)
def resolve(stage: Stage) -> Slots | None:
    ticket, text = _ticket(stage, without="Resolved"), stage.values.text()
    if ticket is None:
        return None
    stage.call("resolve_ticket", ticket_id=ticket, resolution=text)
    return {"w": stage.mention("ticket", ticket), "t": Slot(text, "text")}


@operation(CLASS)
def edit_prio(stage: Stage) -> Slots | None:
    ticket, priority = _ticket(stage), stage.values.integer(1, 5)
    if ticket is None:
        return None
    stage.call("edit_ticket", ticket_id=ticket, updates={"priority": priority})
    return {"w": stage.mention("ticket", ticket), "k": Slot(priority)}


add("my_tickets", CLASS, calling("get_user_tickets"), 0.6)


@operation(CLASS, 0.6)
def my_tickets_status(stage: Stage) -> Slots:
    status = stage.values.pick(("Open", "Closed", "Resolved"))
    stage.call("get_user_tickets", status=status)
    return {"s": Slot(status)}
