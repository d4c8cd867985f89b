"""Operations of TravelAPI."""

from shelf.testbed.synthesis.operations.registry import (
    FACTS,
    Drawn,
    add,
    amount,
    calling,
    money,
    one_of,
    operation,
    text,
    whole,
)
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TravelAPI"
ROUTES = tuple(fare.split("-") for fare in FACTS["fares"])
CURRENCIES = ("RMB", "EUR", "JPY", "GBP", "CAD", "AUD")
_CITIES = {code: city for city, code in FACTS["airports"].items()}


def _trip(stage: Stage) -> dict[str, str]:
    here, there = stage.values.pick(ROUTES)
    travel_class = stage.values.pick(("economy", "business", "first"))
    return {"travel_from": here, "travel_to": there, "travel_date": stage.values.date(), "travel_class": travel_class}


def _trip_slots(trip: dict[str, str]) -> dict[str, Slot]:
    names = {"a": "travel_from", "b": "travel_to", "d": "travel_date", "c": "travel_class"}
    return {slot: Slot(trip[argument]) for slot, argument in names.items()}


def _card(stage: Stage) -> str:
    return stage.values.pick(stage.simulator(CLASS).credit_card_list)


def _token(stage: Stage) -> str:
    return stage.simulator(CLASS).access_token


TOKEN, CARD = Drawn("t", _token, "name"), Drawn("k", _card, "name")


@operation(CLASS, 1.3)
def flight_cost(stage: Stage) -> Slots:
    trip = _trip(stage)
    stage.call("get_flight_cost", **trip)
    return _trip_slots(trip)


@operation(CLASS, uses_results=True)
def flight_city(stage: Stage) -> Slots:
    trip = _trip(stage)
    cities = {slot: _CITIES[trip[argument]] for slot, argument in (("a", "travel_from"), ("b", "travel_to"))}
    for city in cities.values():
        stage.call("get_nearest_airport_by_city", location=city)
    stage.call("get_flight_cost", **trip)
    return _trip_slots(trip) | {slot: Slot(city) for slot, city in cities.items()}


@operation(CLASS, 2.5)
def book(stage: Stage) -> Slots:
    trip, card, token = _trip(stage), _card(stage), _token(stage)
    booked = stage.call("book_flight", access_token=token, card_id=card, **trip)
    stage.created("booking", booked["booking_id"])
    return _trip_slots(trip) | {"k": Slot(card, "name"), "t": Slot(token, "name")}


def _booking(stage: Stage) -> str | None:
    """The booking mentioned last, if it still exists."""
    booking = stage.focus("booking")
    return booking if booking in stage.simulator(CLASS).booking_record else None


def _card_of_booking(stage: Stage) -> str:
    return stage.simulator(CLASS).booking_record[stage.focus("booking")]["card_id"]


BOOKING = Drawn("w", _booking, "name", "booking")
INSURANCE = {
    "access_token": TOKEN,
    "insurance_type": Drawn("i", one_of("travel", "medical", "luggage", "cancellation")),
    "booking_id": BOOKING,
    "insurance_cost": Drawn("x", amount(5, 90, 10), "amount"),
    "card_id": Drawn("k", _card_of_booking, "name"),
}
SUPPORT = {"booking_id": BOOKING, "message": Drawn("t", text, "text")}

add("cancel_booking", CLASS, calling("cancel_booking", drops="booking", access_token=TOKEN, booking_id=BOOKING), 2)
add("invoice", CLASS, calling("retrieve_invoice", access_token=TOKEN, booking_id=BOOKING), 2)
add("insurance", CLASS, calling("purchase_insurance", when=_booking, **INSURANCE), 2)
add("support", CLASS, calling("contact_customer_support", **SUPPORT), 2)

BUDGET = Drawn("x", money, "amount")
add("budget", CLASS, calling("set_budget_limit", access_token=TOKEN, budget_limit=BUDGET))


@operation(CLASS, 0.8, uses_results=True)
def budget_exchange(stage: Stage) -> Slots:
    currency, token = stage.values.pick(CURRENCIES), _token(stage)
    amount = money(stage) * (10 if currency == "JPY" else 1)
    answer = stage.call("compute_exchange_rate", base_currency=currency, target_currency="USD", value=amount)
    stage.call("set_budget_limit", access_token=token, budget_limit=answer["exchanged_value"])
    return {"x": Slot(amount, "amount"), "a": Slot(currency), "t": Slot(token, "name")}


@operation(CLASS)
def exchange(stage: Stage) -> Slots:
    have, want = stage.values.sample(("USD", stage.values.pick(CURRENCIES)), 2)
    amount = money(stage)
    stage.call("compute_exchange_rate", base_currency=have, target_currency=want, value=amount)
    return {"x": Slot(amount, "amount"), "a": Slot(have), "b": Slot(want)}


TRAVELER = {
    "first_name": Drawn("f", lambda stage: stage.simulator(CLASS).user_first_name),
    "last_name": Drawn("l", lambda stage: stage.simulator(CLASS).user_last_name),
    "date_of_birth": Drawn("d", lambda stage: stage.values.date((1960, 2000))),
    "passport_number": Drawn("p", lambda stage: f"US{stage.values.integer(100_000, 999_999)}"),
}

add("verify", CLASS, calling("verify_traveler_information", **TRAVELER), 0.8)
add("airport", CLASS, calling("get_nearest_airport_by_city", location=Drawn("c", one_of(*FACTS["airports"]))))
add("airports", CLASS, calling("list_all_airports"), 0.5)
add("card_balance", CLASS, calling("get_credit_card_balance", access_token=TOKEN, card_id=CARD), 0.8)

NEW_CARD = {
    "card_number": Drawn("n", lambda stage: str(stage.values.integer(10**15, 10**16 - 1))),
    "expiration_date": Drawn("d", lambda stage: f"{stage.values.integer(1, 12):02d}/20{stage.values.integer(27, 31)}"),
    "cardholder_name": Drawn("h", lambda stage: f"{stage.values.person()} {stage.values.person()}"),
    "card_verification_number": Drawn("v", whole(100, 999)),
}

add("register_card", CLASS, calling("register_credit_card", access_token=TOKEN, **NEW_CARD), 0.8)
add("bookings", CLASS, calling("get_booking_history", access_token=TOKEN), 0.5)
add("cards", CLASS, calling("get_all_credit_cards"), 0.5)
