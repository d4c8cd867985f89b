"""Operations of TradingBot."""

from collections.abc import Collection

from shelf.testbed.synthesis.operations.registry import FACTS, Run, add, calling, logging_in, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TradingBot"


def _stock(stage: Stage) -> str:
    return stage.values.pick(stage.simulator(CLASS).stocks)


def _mention(stage: Stage, symbol: str) -> Slot:
    return stage.mention("stock", symbol, "plain")


add("trading_login", CLASS, logging_in(CLASS, lambda own: own.authenticated), 0.6)


@operation(CLASS, 0.4)
def trading_logout(stage: Stage) -> Slots | None:
    if not stage.simulator(CLASS).authenticated:
        return None
    stage.call("trading_logout")
    stage.finished.add(CLASS)
    return {}


@operation(CLASS, 1.5)
def stock_info(stage: Stage) -> Slots:
    symbol = _stock(stage)
    stage.call("get_stock_info", symbol=symbol)
    return {"s": _mention(stage, symbol)}


@operation(CLASS)
def watch_add(stage: Stage) -> Slots | None:
    own = stage.simulator(CLASS)
    symbol = stage.values.pick([symbol for symbol in own.stocks if symbol not in own.watch_list])
    if symbol is None:
        return None
    stage.call("add_to_watchlist", stock=symbol)
    return {"s": _mention(stage, symbol)}


@operation(CLASS)
def watch_remove(stage: Stage) -> Slots | None:
    symbol = stage.values.pick(stage.simulator(CLASS).watch_list)
    if symbol is None:
        return None
    stage.call("remove_stock_from_watchlist", symbol=symbol)
    return {"s": _mention(stage, symbol)}


def _order(stage: Stage, side: str, symbol: str, price: float, amount: int) -> None:
    order = stage.call("place_order", order_type=side, symbol=symbol, price=price, amount=amount)
    stage.created("order", order["order_id"])


def _trade(side: str) -> Run:
    def run(stage: Stage) -> Slots:
        symbol, price, amount = _stock(stage), stage.values.amount(5, 400), stage.values.integer(1, 25)
        _order(stage, side, symbol, price, amount)
        return {"s": _mention(stage, symbol), "x": Slot(price, "amount"), "a": Slot(amount)}

    return run


add("buy", CLASS, _trade("Buy"), 1.2)
add("sell", CLASS, _trade("Sell"))


@operation(CLASS, uses_results=True)
def buy_market(stage: Stage) -> Slots:
    symbol, amount = _stock(stage), stage.values.integer(1, 20)
    price = stage.call("get_stock_info", symbol=symbol)["price"]
    _order(stage, "Buy", symbol, price, amount)
    return {"s": _mention(stage, symbol), "a": Slot(amount)}


@operation(CLASS, 2.5)
def buy_fund(stage: Stage) -> Slots | None:
    own, values = stage.simulator(CLASS), stage.values
    if not own.authenticated:
        return None
    symbol, price, balance = _stock(stage), values.amount(20, 90), own.account_info["balance"]
    if values.chance(0.6):
        amount = int(balance / price) + values.integer(5, 20)
        deposit = float((int(price * amount - balance) // 1000 + 1) * 1000)
        order = {"order_type": "Buy", "symbol": symbol, "price": price, "amount": amount}
        stage.fail("funds", "place_order", **order)
        stage.call("fund_account", amount=deposit)
    else:
        amount, deposit = values.integer(1, 8), values.amount(1, 9, 1000)
    _order(stage, "Buy", symbol, price, amount)
    return {
        "s": _mention(stage, symbol),
        "x": Slot(price, "amount"),
        "a": Slot(amount),
        "m": Slot(deposit, "amount"),
    }


def _orders(stage: Stage, statuses: Collection[str] | None = None) -> list[int]:
    """The ids of the orders, or of those in one of these states."""
    orders = stage.simulator(CLASS).orders
    return [
        number
        for number, order in orders.items()
        if isinstance(order, dict) and (statuses is None or order.get("status") in statuses)
    ]


_LIVE = ("Open", "Pending")


def _of_order(tool: str, statuses: Collection[str] | None = None) -> Run:
    def run(stage: Stage) -> Slots | None:
        orders, last = _orders(stage, statuses), stage.focus("order")
        order = last if last in orders and stage.values.chance(0.7) else stage.values.pick(orders)
        if order is None:
            return None
        stage.call(tool, order_id=order)
        return {"w": stage.mention("order", order)}

    return run


add("order_details", CLASS, _of_order("get_order_details"), 1.3)
add("cancel_order", CLASS, _of_order("cancel_order", _LIVE), 1.2)


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


@operation(CLASS)
def fund(stage: Stage) -> Slots:
    amount = stage.values.amount(1, 60, stage.values.pick((10, 50, 100, 100)))
    stage.call("fund_account", amount=amount)
    return {"x": Slot(amount, "amount")}


@operation(CLASS)
def withdraw(stage: Stage) -> Slots | None:
    if stage.simulator(CLASS).market_status != "Open":
        return None
    amount = stage.values.amount(1, 40, 10)
    stage.call("withdraw_funds", amount=amount)
    return {"x": Slot(amount, "amount")}


@operation(CLASS, uses_results=True)
def last_order(stage: Stage) -> Slots | None:
    history = stage.call("get_order_history")["history"]
    if not history or not isinstance(history[-1], int):
        return None
    stage.call("get_order_details", order_id=history[-1])
    stage.put_in_focus("order", history[-1])
    return {}


@operation(CLASS)
def stocks_of(stage: Stage) -> Slots:
    sector = stage.values.pick(("Technology", "Automobile"))
    stage.call("get_available_stocks", sector=sector)
    return {"x": Slot(sector)}


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


@operation(CLASS)
def symbol(stage: Stage) -> Slots:
    company = stage.values.pick(FACTS["companies"])
    stage.call("get_symbol_by_name", name=company)
    stage.drop_focus("stock")
    return {"n": Slot(company)}
