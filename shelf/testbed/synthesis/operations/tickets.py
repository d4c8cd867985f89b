"""Operations of TicketAPI."""

from functools import partial

from shelf.testbed.synthesis.operations.registry import (
    Drawn,
    add,
    calling,
    logging_in,
    logging_out,
    one_of,
    operation,
    text,
    whole,
)
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TicketAPI"

add("ticket_login", CLASS, logging_in(CLASS, lambda own: own.current_user), 0.6)
add("ticket_logout", CLASS, logging_out(CLASS, "logout", lambda own: own.current_user), 0.4)

TITLE = Drawn("t", lambda stage: stage.values.title(), "text")
DESCRIPTION, PRIORITY = Drawn("x", text, "text"), Drawn("k", whole(2, 5))
MADE = ("ticket", "id")

add("create_title", CLASS, calling("create_ticket", creates=MADE, title=TITLE))
add("create_prio", CLASS, calling("create_ticket", creates=MADE, title=TITLE, priority=PRIORITY))
add("create_desc", CLASS, calling("create_ticket", creates=MADE, title=TITLE, description=DESCRIPTION))
add(
    "create_full",
    CLASS,
    calling("create_ticket", creates=MADE, title=TITLE, description=DESCRIPTION, priority=PRIORITY),
)


def _ticket(stage: Stage, without: str = "") -> int | None:
    tickets = [ticket["id"] for ticket in stage.simulator(CLASS).ticket_queue if ticket.get("status") != without]
    last = stage.focus("ticket")
    return last if last in tickets and stage.values.chance(0.7) else stage.values.pick(tickets)


OPEN = Drawn("w", partial(_ticket, without="Closed"), "name", "ticket")

add("get_ticket", CLASS, calling("get_ticket", ticket_id=Drawn("w", _ticket, "name", "ticket")))
add("close_ticket", CLASS, calling("close_ticket", ticket_id=OPEN))


@operation(CLASS)
def resolve(stage: Stage) -> Slots | None:
    ticket, resolution = _ticket(stage, without="Resolved"), stage.values.text()
    if ticket is None:
        return None
    stage.call("resolve_ticket", ticket_id=ticket, resolution=resolution)
    return {"w": stage.mention("ticket", ticket), "t": Slot(resolution, "text")}


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
