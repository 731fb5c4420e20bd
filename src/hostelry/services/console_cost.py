"""The console's costs: the reports of `hostelry cost` on the last 24 hours."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.console.platform import PlatformError
from hostelry.cost.document import build_document
from hostelry.cost.period import Period, find_period
from hostelry.cost.prices import PriceList
from hostelry.cost.usage import gather_hours
from hostelry.cost.view import CostView, find_first, read_sums
from hostelry.home.price_file import load_prices

SHOWN = ("endpoint", "component", "adapter", "tenant")
MAX_ROWS = 200  # of each list. The first ones cost most
LISTS = ("rows", "idle", "hours_without_calls", "steps", "budgets")
Ask = Callable[[str, str, Mapping[str, str]], Awaitable[dict[str, Any]]]


async def ask_costs(ask: Ask, path: Path, now: float) -> dict[str, Any]:
    """The reports, from the prices in the file `path`. `ask` asks an internal route of a process.

    Raises PlatformError, with the remedy, without valid prices or while control is away.
    """
    prices = await asyncio.to_thread(read_prices, path)
    period = find_period(None, None, None, now)
    query = {"from": str(find_first(period, prices, now)), "to": str(max(period.until, now))}
    answer = await ask("control", "/internal/cost-usage", query)
    return await asyncio.to_thread(build_costs, prices, answer, period, now)


def read_prices(path: Path) -> PriceList:
    """The prices in a file. Raises PlatformError."""
    try:
        prices = load_prices(path)
    except TerminalError as error:
        raise PlatformError(str(error)) from error
    if prices is None:
        raise PlatformError(
            f"There are no prices: write {path}. `hostelry cost --example-prices` prints an"
            " example."
        )
    return prices


def build_costs(
    prices: PriceList, answer: Mapping[str, Any], period: Period, now: float
) -> dict[str, Any]:
    """The `reports` by kind of row. `left_out` has the number of further entries of each list."""
    view = CostView(prices, gather_hours(read_sums(answer)), period, min(period.until, now))
    budgets = view.evaluate(answer["tags"], now)
    reports, left_out = {}, {}
    for by in SHOWN:
        whole = build_document(view.build(None, by), budgets, prices.currency, by)
        left_out[by] = {name: max(0, len(whole[name]) - MAX_ROWS) for name in LISTS}
        reports[by] = {**whole, **{name: whole[name][:MAX_ROWS] for name in LISTS}}
    return {"reports": reports, "left_out": left_out}
