"""Operations of TravelAPI."""

from collections.abc import Callable

from shelf.testbed.synthesis.operations.registry import FACTS, Run, add, calling, operation
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


def _name(value: str) -> Slot:
    return Slot(value, "name")


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
    return _trip_slots(trip) | {"k": _name(card), "t": _name(token)}


def _of_booking(run: Callable[[Stage, str, str], Slots]) -> Run:
    """An operation on the booking in focus and the access token."""

    def checked(stage: Stage) -> Slots | None:
        booking = stage.focus("booking")
        if booking not in stage.simulator(CLASS).booking_record:
            return None
        return {"w": stage.mention("booking", booking), **run(stage, booking, _token(stage))}

    return checked


def _cancel(stage: Stage, booking: str, token: str) -> Slots:
    stage.call("cancel_booking", access_token=token, booking_id=booking)
    stage.drop_focus("booking")
    return {"t": _name(token)}


def _invoice(stage: Stage, booking: str, token: str) -> Slots:
    stage.call("retrieve_invoice", access_token=token, booking_id=booking)
    return {"t": _name(token)}


def _insure(stage: Stage, booking: str, token: str) -> Slots:
    card = stage.simulator(CLASS).booking_record[booking]["card_id"]
    kind, cost = stage.values.pick(("travel", "medical", "luggage", "cancellation")), stage.values.amount(5, 90, 10)
    stage.call(
        "purchase_insurance",
        access_token=token,
        insurance_type=kind,
        booking_id=booking,
        insurance_cost=cost,
        card_id=card,
    )
    return {"t": _name(token), "k": _name(card), "i": Slot(kind), "x": Slot(cost, "amount")}


def _contact_support(stage: Stage, booking: str, token: str) -> Slots:
    text = stage.values.text()
    stage.call("contact_customer_support", booking_id=booking, message=text)
    return {"t": Slot(text, "text")}


add("cancel_booking", CLASS, _of_booking(_cancel), 2)
add("invoice", CLASS, _of_booking(_invoice), 2)
add("insurance", CLASS, _of_booking(_insure), 2)
add("support", CLASS, _of_booking(_contact_support), 2)


def _money(stage: Stage) -> float:
    return stage.values.amount(1, 60, stage.values.pick((10, 50, 100, 100)))


@operation(CLASS)
def budget(stage: Stage) -> Slots:
    amount, token = _money(stage), _token(stage)
    stage.call("set_budget_limit", access_token=token, budget_limit=amount)
    return {"x": Slot(amount, "amount"), "t": _name(token)}


@operation(CLASS, 0.8, uses_results=True)
def budget_exchange(stage: Stage) -> Slots:
    currency, token = stage.values.pick(CURRENCIES), _token(stage)
    amount = _money(stage) * (10 if currency == "JPY" else 1)
    answer = stage.call("compute_exchange_rate", base_currency=currency, target_currency="USD", value=amount)
    stage.call("set_budget_limit", access_token=token, budget_limit=answer["exchanged_value"])
    return {"x": Slot(amount, "amount"), "a": Slot(currency), "t": _name(token)}


@operation(CLASS)
def exchange(stage: Stage) -> Slots:
    have, want = stage.values.sample(("USD", stage.values.pick(CURRENCIES)), 2)
    amount = _money(stage)
    stage.call("compute_exchange_rate", base_currency=have, target_currency=want, value=amount)
    return {"x": Slot(amount, "amount"), "a": Slot(have), "b": Slot(want)}


@operation(CLASS, 0.8)
def verify(stage: Stage) -> Slots:
    own, born = stage.simulator(CLASS), stage.values.date((1960, 2000))
    passport = f"US{stage.values.integer(100_000, 999_999)}"
    stage.call(
        "verify_traveler_information",
        first_name=own.user_first_name,
        last_name=own.user_last_name,
        date_of_birth=born,
        passport_number=passport,
    )
    return {"f": Slot(own.user_first_name), "l": Slot(own.user_last_name), "d": Slot(born), "p": Slot(passport)}


@operation(CLASS)
def airport(stage: Stage) -> Slots:
    city = stage.values.pick(FACTS["airports"])
    stage.call("get_nearest_airport_by_city", location=city)
    return {"c": Slot(city)}


add("airports", CLASS, calling("list_all_airports"), 0.5)


@operation(CLASS, 0.8)
def card_balance(stage: Stage) -> Slots:
    card, token = _card(stage), _token(stage)
    stage.call("get_credit_card_balance", access_token=token, card_id=card)
    return {"k": _name(card), "t": _name(token)}


@operation(CLASS, 0.8)
def register_card(stage: Stage) -> Slots:
    values, token = stage.values, _token(stage)
    card = {
        "card_number": str(values.integer(10**15, 10**16 - 1)),
        "expiration_date": f"{values.integer(1, 12):02d}/20{values.integer(27, 31)}",
        "cardholder_name": f"{values.person()} {values.person()}",
        "card_verification_number": values.integer(100, 999),
    }
    stage.call("register_credit_card", access_token=token, **card)
    number, expiry, holder, code = card.values()
    return {"n": Slot(number), "d": Slot(expiry), "h": Slot(holder), "v": Slot(code), "t": _name(token)}


@operation(CLASS, 0.5)
def bookings(stage: Stage) -> Slots:
    token = _token(stage)
    stage.call("get_booking_history", access_token=token)
    return {"t": _name(token)}


add("cards", CLASS, calling("get_all_credit_cards"), 0.5)
