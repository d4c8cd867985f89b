"""Operations of TicketAPI."""

from functools import partial
from typing import Any

from shelf.testbed.synthesis.operations.registry import (
    Drawn,
    Run,
    add,
    calling,
    logging_in,
    logging_out,
    one_of,
    operation,
)
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TicketAPI"


add("ticket_login", CLASS, logging_in(CLASS, lambda own: own.current_user), 0.6)
add("ticket_logout", CLASS, logging_out(CLASS, "logout", lambda own: own.current_user), 0.4)


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


OPEN = Drawn("w", partial(_ticket, without="Closed"), "name", "ticket")

add("get_ticket", CLASS, calling("get_ticket", ticket_id=Drawn("w", _ticket, "name", "ticket")))
add("close_ticket", CLASS, calling("close_ticket", ticket_id=OPEN))


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
STATUS = Drawn("s", one_of("Open", "Closed", "Resolved"))
add("my_tickets_status", CLASS, calling("get_user_tickets", status=STATUS), 0.6)
