"""Operations of MessageAPI."""

from shelf.testbed.synthesis.operations.registry import add, calling, logging_in, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "MessageAPI"


def _user_id(stage: Stage) -> str:
    return stage.values.pick(stage.simulator(CLASS).user_map.values())


def _user_name(stage: Stage) -> str:
    return stage.values.pick(stage.simulator(CLASS).user_map)


add("message_login", CLASS, logging_in(CLASS, lambda own: own.current_user is not None), 0.6)


@operation(CLASS)
def get_user_id(stage: Stage) -> Slots:
    name = _user_name(stage)
    stage.call("get_user_id", user=name)
    stage.drop_focus("user")
    return {"n": Slot(name)}


@operation(CLASS, 1.5)
def send_id(stage: Stage) -> Slots:
    user, text = _user_id(stage), stage.values.text()
    stage.call("send_message", receiver_id=user, message=text)
    return {"u": stage.mention("user", user, "plain"), "t": Slot(text, "text")}


@operation(CLASS, uses_results=True)
def send_name(stage: Stage) -> Slots:
    name, text = _user_name(stage), stage.values.text()
    user = stage.call("get_user_id", user=name)["user_id"]
    stage.call("send_message", receiver_id=user, message=text)
    stage.put_in_focus("user", user)
    return {"n": Slot(name), "t": Slot(text, "text")}


@operation(CLASS)
def delete_message(stage: Stage) -> Slots | None:
    user = stage.values.pick([receiver for message in stage.simulator(CLASS).inbox for receiver in message])
    if user is None:
        return None
    stage.call("delete_message", receiver_id=user)
    return {"u": stage.mention("user", user, "plain")}


add("view_sent", CLASS, calling("view_messages_sent"))


@operation(CLASS)
def add_contact(stage: Stage) -> Slots | None:
    name = stage.values.person()
    if name in stage.simulator(CLASS).user_map:
        return None
    stage.put_in_focus("user", stage.call("add_contact", user_name=name)["user_id"])
    return {"n": Slot(name)}


@operation(CLASS, 0.8)
def search_messages(stage: Stage) -> Slots | None:
    texts = [str(text) for message in stage.simulator(CLASS).inbox for text in message.values()]
    word = stage.values.pick([word for text in texts for word in text.split() if word.isalpha()])
    if word is None:
        return None
    stage.call("search_messages", keyword=word)
    return {"p": Slot(word, "text")}


add("list_users", CLASS, calling("list_users"), 0.6)


add("message_stats", CLASS, calling("get_message_stats"), 0.5)
