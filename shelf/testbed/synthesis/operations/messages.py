"""Operations of MessageAPI."""

from shelf.testbed.synthesis.operations.registry import Drawn, add, calling, logging_in, operation, text
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "MessageAPI"


def _user_name(stage: Stage) -> str:
    return stage.values.pick(stage.simulator(CLASS).user_map)


def _receiver(stage: Stage) -> str | None:
    return stage.values.pick([receiver for message in stage.simulator(CLASS).inbox for receiver in message])


def _sent_word(stage: Stage) -> str | None:
    said = [str(each) for message in stage.simulator(CLASS).inbox for each in message.values()]
    return stage.values.pick([word for each in said for word in each.split() if word.isalpha()])


USER = Drawn("u", lambda stage: stage.values.pick(stage.simulator(CLASS).user_map.values()), "plain", "user")

add("message_login", CLASS, logging_in(CLASS, lambda own: own.current_user is not None), 0.6)
add("get_user_id", CLASS, calling("get_user_id", drops="user", user=Drawn("n", _user_name)))
add("send_id", CLASS, calling("send_message", receiver_id=USER, message=Drawn("t", text, "text")), 1.5)


@operation(CLASS, uses_results=True)
def send_name(stage: Stage) -> Slots:
    name, message = _user_name(stage), stage.values.text()
    user = stage.call("get_user_id", user=name)["user_id"]
    stage.call("send_message", receiver_id=user, message=message)
    stage.put_in_focus("user", user)
    return {"n": Slot(name), "t": Slot(message, "text")}


add("delete_message", CLASS, calling("delete_message", receiver_id=Drawn("u", _receiver, "plain", "user")))
add("view_sent", CLASS, calling("view_messages_sent"))


@operation(CLASS)
def add_contact(stage: Stage) -> Slots | None:
    name = stage.values.person()
    if name in stage.simulator(CLASS).user_map:
        return None
    stage.put_in_focus("user", stage.call("add_contact", user_name=name)["user_id"])
    return {"n": Slot(name)}


add("search_messages", CLASS, calling("search_messages", keyword=Drawn("p", _sent_word, "text")), 0.8)
add("list_users", CLASS, calling("list_users"), 0.6)
add("message_stats", CLASS, calling("get_message_stats"), 0.5)
