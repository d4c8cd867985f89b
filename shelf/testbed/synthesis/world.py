"""Initial configurations in the shape of the benchmark's, with other values.

Keys of tables are strings, as in the benchmark's files, so that a configuration survives a file unchanged.
"""

from collections.abc import Callable, Iterable
from typing import Any

from shelf.testbed.synthesis.values import Values

Config = dict[str, Any]

SYMBOLS = ("AAPL", "GOOG", "TSLA", "MSFT", "NVDA", "ALPH", "OMEG", "QUAS", "NEPT", "SYNX", "ZETA")
"""Ticker symbols that the trading simulator knows."""
DOORS = ("driver", "passenger", "rear_left", "rear_right")


def configuration(classes: Iterable[str], values: Values) -> Config:
    """One initial configuration per simulator class."""
    return {name: _MAKERS[name](values) for name in classes}


def _files(values: Values) -> Config:
    def files(count: int) -> Config:
        return {values.file_name(): {"type": "file", "content": content()} for _ in range(count)}

    def content() -> str:
        if values.chance(0.15):
            return ""
        return values.pick((" ", "\n")).join(values.text() for _ in range(values.integer(1, 3)))

    def folder(depth: int) -> Config:
        below = {values.word(): folder(depth - 1) for _ in range(values.integer(0, 2))} if depth else {}
        return {"type": "directory", "contents": {**files(values.integer(0, 3)), **below}}

    folders = {values.word(): folder(1) for _ in range(values.integer(1, 3))}
    root = {"type": "directory", "contents": {**files(values.integer(1, 4)), **folders}}
    return {"root": {values.word(): root}}


def _messages(values: Values) -> Config:
    names = dict.fromkeys(values.person() for _ in range(values.integer(3, 5)))
    users = {name: f"USR{number:03d}" for number, name in enumerate(names, start=1)}
    ids = tuple(users.values())
    return {
        "random_seed": values.integer(1, 10**6),
        "user_count": len(ids),
        "user_map": users,
        "inbox": [{values.pick(ids): values.text()} for _ in range(values.integer(1, 3))],
        "message_count": 3,
        "current_user": values.pick(ids) if values.chance(0.55) else None,
    }


def _tweets(values: Values) -> Config:
    user, count = values.user_name(), values.integer(1, 4)
    first = 0 if values.chance(0.6) else values.integer(1, 90)
    tweets = {
        str(number): {
            "id": number,
            "username": user,
            "content": values.text(),
            "tags": [f"#{values.word()}"],
            "mentions": [],
        }
        for number in range(first, first + count)
    }
    return {
        "username": user,
        "password": values.secret(),
        "authenticated": values.chance(0.6),
        "tweets": tweets,
        "comments": {},
        "retweets": {},
        "following_list": [values.user_name() for _ in range(values.integer(1, 3))],
        "tweet_counter": first + count,
    }


def _tickets(values: Values) -> Config:
    user = values.user_name() if values.chance(0.6) else None
    first, count = 1 if values.chance(0.5) else values.integer(1, 60), values.integer(1, 3)
    queue = [
        {
            "id": number,
            "title": values.title(),
            "description": values.text(),
            "status": "Open",
            "priority": values.integer(1, 5),
            "created_by": user or values.user_name(),
        }
        for number in range(first, first + count)
    ]
    return {"ticket_queue": queue, "ticket_counter": first + count, "current_user": user}


def _trading(values: Values) -> Config:
    symbols = [*values.sample(SYMBOLS, 7), values.word()[:4].upper()]
    stocks = {
        symbol: {
            "price": values.amount(10, 600),
            "percent_change": values.integer(-40, 40) / 100,
            "volume": values.amount(1, 9),
            "MA(5)": values.amount(10, 600),
        }
        for symbol in symbols
    }
    first, count = values.integer(100, 900), values.integer(1, 3)
    orders = {
        str(number): {
            "id": number,
            "order_type": values.pick(("Buy", "Sell")),
            "symbol": values.pick(symbols),
            "price": values.amount(10, 600),
            "amount": values.integer(1, 50),
            "status": values.pick(("Completed", "Pending", "Open")),
        }
        for number in range(first, first + count)
    }
    account = {
        "account_id": values.integer(100, 999),
        "balance": values.amount(10, 200, 100),
        "binding_card": values.integer(1000, 9999),
    }
    return {
        "orders": orders,
        "account_info": account,
        "authenticated": values.chance(0.65),
        "market_status": values.pick(("Open", "Closed")),
        "order_counter": first + count,
        "stocks": stocks,
        "watch_list": values.sample(symbols, values.integer(1, 3)),
        "transaction_history": [],
        "random_seed": values.integer(1, 10**6),
    }


def _vehicle(values: Values) -> Config:
    locked = 1.0 if values.chance(0.3) else 0.4
    tires = {
        f"{place}TirePressure": values.amount(26, 38) for place in ("frontLeft", "frontRight", "rearLeft", "rearRight")
    }
    return {
        "random_seed": values.integer(1, 10**6),
        "fuelLevel": values.amount(2, 45),
        "batteryVoltage": values.integer(110, 135) / 10,
        "engineState": "stopped",
        "doorStatus": {door: "locked" if values.chance(locked) else "unlocked" for door in DOORS},
        "acTemperature": 25.0,
        "fanSpeed": 50,
        "acMode": "auto",
        "humidityLevel": 50.0,
        "headLightStatus": values.pick(("on", "off")),
        "parkingBrakeStatus": values.pick(("engaged", "released")),
        "parkingBrakeForce": 0.0,
        "slopeAngle": 0.0,
        "distanceToNextVehicle": 50.0,
        "cruiseStatus": "inactive",
        "destination": "None",
        **tires,
    }


def _travel(values: Values) -> Config:
    first, last = values.person(), values.person()
    card = values.pick(
        (
            f"card_{values.integer(1000, 9999)}",
            str(values.integer(10**11, 10**12 - 1)),
            f"main{values.integer(1000, 9999)}",
            f"{values.word()}_{values.integer(10, 9999)}",
        )
    )
    token = values.pick(
        (
            f"{values.word()[:3]}{values.integer(100, 999)}{values.word()[:3]}",
            str(values.integer(100_000, 999_999)),
            f"token{values.integer(10, 99_999)}",
        )
    )
    details = {
        "card_number": str(values.integer(10**15, 10**16 - 1)),
        "expiration_date": "12/2028",
        "cardholder_name": f"{first} {last}",
        "card_verification_number": values.integer(100, 999),
        "balance": values.amount(80, 400, 100),
    }
    return {
        "random_seed": values.integer(1, 10**6),
        "credit_card_list": {card: details},
        "booking_record": {},
        "access_token": token,
        "token_type": "Bearer",
        "token_expires_in": 3600,
        "token_scope": "read_write",
        "user_first_name": first,
        "user_last_name": last,
        "budget_limit": None,
    }


_MAKERS: dict[str, Callable[[Values], Config]] = {
    "GorillaFileSystem": _files,
    "MessageAPI": _messages,
    "TwitterAPI": _tweets,
    "TicketAPI": _tickets,
    "TradingBot": _trading,
    "VehicleControlAPI": _vehicle,
    "TravelAPI": _travel,
    "MathAPI": lambda values: {},
}
