"""Operations of TradingBot."""

from collections.abc import Collection

from shelf.testbed.synthesis.operations.registry import (
    FACTS,
    Draw,
    Drawn,
    add,
    amount,
    calling,
    logging_in,
    logging_out,
    money,
    one_of,
    operation,
    whole,
)
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TradingBot"


def _stock(stage: Stage) -> str:
    return stage.values.pick(stage.simulator(CLASS).stocks)


def _unwatched(stage: Stage) -> str | None:
    own = stage.simulator(CLASS)
    return stage.values.pick([symbol for symbol in own.stocks if symbol not in own.watch_list])


WATCHED = Drawn("s", lambda stage: stage.values.pick(stage.simulator(CLASS).watch_list), "plain", "stock")

STOCK = Drawn("s", _stock, "plain", "stock")

add("trading_login", CLASS, logging_in(CLASS, lambda own: own.authenticated), 0.6)
add("trading_logout", CLASS, logging_out(CLASS, "trading_logout", lambda own: own.authenticated), 0.4)
add("stock_info", CLASS, calling("get_stock_info", symbol=STOCK), 1.5)
add("watch_add", CLASS, calling("add_to_watchlist", stock=Drawn("s", _unwatched, "plain", "stock")))
add("watch_remove", CLASS, calling("remove_stock_from_watchlist", symbol=WATCHED))


def _order(stage: Stage, side: str, symbol: str, price: float, number: int) -> None:
    order = stage.call("place_order", order_type=side, symbol=symbol, price=price, amount=number)
    stage.created("order", order["order_id"])


TRADE = {"symbol": STOCK, "price": Drawn("x", amount(5, 400), "amount"), "amount": Drawn("a", whole(1, 25))}
PLACED = ("order", "order_id")

add("buy", CLASS, calling("place_order", creates=PLACED, order_type="Buy", **TRADE), 1.2)
add("sell", CLASS, calling("place_order", creates=PLACED, order_type="Sell", **TRADE))


@operation(CLASS, uses_results=True)
def buy_market(stage: Stage) -> Slots:
    symbol, number = _stock(stage), stage.values.integer(1, 20)
    price = stage.call("get_stock_info", symbol=symbol)["price"]
    _order(stage, "Buy", symbol, price, number)
    return {"s": stage.mention("stock", symbol, "plain"), "a": Slot(number)}


@operation(CLASS, 2.5)
def buy_fund(stage: Stage) -> Slots | None:
    own, values = stage.simulator(CLASS), stage.values
    if not own.authenticated:
        return None
    symbol, price, balance = _stock(stage), values.amount(20, 90), own.account_info["balance"]
    if values.chance(0.6):
        number = int(balance / price) + values.integer(5, 20)
        deposit = float((int(price * number - balance) // 1000 + 1) * 1000)
        order = {"order_type": "Buy", "symbol": symbol, "price": price, "amount": number}
        stage.fail("funds", "place_order", **order)
        stage.call("fund_account", amount=deposit)
    else:
        number, deposit = values.integer(1, 8), values.amount(1, 9, 1000)
    _order(stage, "Buy", symbol, price, number)
    stock = stage.mention("stock", symbol, "plain")
    return {"s": stock, "x": Slot(price, "amount"), "a": Slot(number), "m": Slot(deposit, "amount")}


def _orders(stage: Stage, statuses: Collection[str] | None = None) -> list[int]:
    """The ids of the orders, or of those in one of these states."""
    orders = stage.simulator(CLASS).orders
    return [
        number
        for number, order in orders.items()
        if isinstance(order, dict) and (statuses is None or order.get("status") in statuses)
    ]


_LIVE = ("Open", "Pending")


def _some_order(statuses: Collection[str] | None = None) -> Draw:
    """An order, or one in one of these states, often the one mentioned last."""

    def draw(stage: Stage) -> int | None:
        orders, last = _orders(stage, statuses), stage.focus("order")
        return last if last in orders and stage.values.chance(0.7) else stage.values.pick(orders)

    return draw


ORDER, LIVE = (Drawn("w", _some_order(statuses), "name", "order") for statuses in (None, _LIVE))

add("order_details", CLASS, calling("get_order_details", order_id=ORDER), 1.3)
add("cancel_order", CLASS, calling("cancel_order", order_id=LIVE), 1.2)


@operation(CLASS, 2.5)
def cancel_alt(stage: Stage) -> Slots | None:
    completed, live = _orders(stage, ("Completed",)), _orders(stage, _LIVE)
    wanted = stage.values.pick(completed if stage.values.chance(0.6) else live)
    other = stage.values.pick(live)
    if wanted is None or other is None or wanted == other:
        return None
    if wanted in completed:
        stage.fail("completed", "cancel_order", order_id=wanted)
        stage.call("cancel_order", order_id=other)
    else:
        stage.call("cancel_order", order_id=wanted)
    stage.drop_focus("order")
    return {"a": Slot(wanted), "b": Slot(other)}


add("watchlist", CLASS, calling("get_watchlist"))
add("account", CLASS, calling("get_account_info"))
add("order_history", CLASS, calling("get_order_history"), 0.8)
add("time", CLASS, calling("get_current_time"), 0.5)
add("fund", CLASS, calling("fund_account", amount=Drawn("x", money, "amount")))

WITHDRAWN = {
    "when": lambda stage: stage.simulator(CLASS).market_status == "Open",
    "amount": Drawn("x", amount(1, 40, 10), "amount"),
}
add("withdraw", CLASS, calling("withdraw_funds", **WITHDRAWN))


@operation(CLASS, uses_results=True)
def last_order(stage: Stage) -> Slots | None:
    history = stage.call("get_order_history")["history"]
    if not history or not isinstance(history[-1], int):
        return None
    stage.call("get_order_details", order_id=history[-1])
    stage.put_in_focus("order", history[-1])
    return {}


SECTOR = Drawn("x", one_of("Technology", "Automobile"))
add("stocks_of", CLASS, calling("get_available_stocks", sector=SECTOR))


@operation(CLASS, 0.8)
def filter_price(stage: Stage) -> Slots:
    symbols = stage.values.sample(list(stage.simulator(CLASS).stocks), 3)
    low = stage.values.amount(1, 20, 10)
    high = low + stage.values.amount(10, 80, 10)
    stage.call("filter_stocks_by_price", stocks=symbols, min_price=low, max_price=high)
    stage.drop_focus("stock")
    return {"l": Slot(", ".join(symbols)), "x": Slot(low, "amount"), "y": Slot(high, "amount")}


@operation(CLASS, 0.8)
def notify(stage: Stage) -> Slots:
    symbols = stage.values.sample(list(stage.simulator(CLASS).stocks), 2)
    threshold = stage.values.integer(1, 9) / 10
    stage.call("notify_price_change", stocks=symbols, threshold=threshold)
    stage.drop_focus("stock")
    return {"l": Slot(" and ".join(symbols)), "x": Slot(threshold)}


add("symbol", CLASS, calling("get_symbol_by_name", drops="stock", name=Drawn("n", one_of(*FACTS["companies"]))))
