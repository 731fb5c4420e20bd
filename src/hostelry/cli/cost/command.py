"""The command `hostelry cost`."""

import csv
import io
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import write_whole
from hostelry.cli import completion as names
from hostelry.cli.control_requests import control_answer
from hostelry.cli.cost.text import cost_lines
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cost.attribution import Charge
from hostelry.cost.document import build_document
from hostelry.cost.export import list_focus_rows, list_report_rows
from hostelry.cost.period import find_period
from hostelry.cost.prices import NO_PRICES, PriceList
from hostelry.cost.usage import gather_hours
from hostelry.cost.view import CostView, find_first, read_sums
from hostelry.home.home import Credentials
from hostelry.home.price_file import list_unknown_types, load_prices, read_example


class By(StrEnum):
    """The names of the rows."""

    ENDPOINT = "endpoint"
    COMPONENT = "component"
    ADAPTER = "adapter"
    MODEL = "model"
    TENANT = "tenant"
    INSTANCE_TYPE = "instance-type"
    HOUR = "hour"


def cost(  # noqa: PLR0913 - the options of a command
    name: Annotated[
        str | None,
        typer.Argument(help="Endpoint, component or adapter.", autocompletion=names.endpoints),
    ] = None,
    since: Annotated[str | None, typer.Option("--from", help="Start, in UTC.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="End, in UTC.")] = None,
    last: Annotated[
        str | None,
        typer.Option(help="Length of the period in whole hours, days or weeks: 24h, 7d, 4w."),
    ] = None,
    by: Annotated[By, typer.Option(help="What each row is.")] = By.ENDPOINT,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", help="Write the rows to this CSV file.")
    ] = None,
    focus_file: Annotated[
        Path | None, typer.Option("--focus", help="Write hourly charges in FOCUS 1.2's columns.")
    ] = None,
    example_prices: Annotated[
        bool, typer.Option("--example-prices", help="Print an example of prices.toml.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the cost of endpoints, models and idle time, from prices.toml in the home.

    Periods are whole hours in UTC. Amounts without a known price are named, not taken as 0. Without
    prices.toml the hours of instances, the calls and the steps are shown.

    Example: hostelry cost --last 7d --by component
    """
    if example_prices:
        typer.echo(read_example(), nl=False)
        return
    if name is not None and not name.strip():
        raise UsageError(
            f"{name!r} is not a valid name: give an endpoint, a component or an adapter, or leave"
            " it out"
        )
    place = home_at(home)
    _, credentials = loaded = load_home(place)
    check_outputs(place.prices, csv_file, focus_file)
    now = SystemClock().now()
    period = find_period(since, until, last, now)
    prices = find_prices(place.prices, focus_file)
    answer = control_answer(
        *loaded,
        "/internal/cost-usage",
        {"from": str(find_first(period, prices, now)), "to": str(max(period.until, now))},
        knows="of usage",
    )
    found = CostView(prices, gather_hours(read_sums(answer)), period, min(period.until, now))
    report = found.build(name, by.value)
    if name is not None and not report.rows and not report.idle:
        raise TerminalError(
            f"no usage of {name} is recorded in this period; `hostelry cost` lists the names"
        )
    budgets = found.evaluate(answer["tags"], now)
    note_unknown_types(place.prices, prices, {it.instance_type for it in found.select(None)[0]})
    if csv_file is not None:
        write_rows(csv_file, list_report_rows(report, prices.currency))
    if focus_file is not None:
        charges = found.select(name)[0]
        write_rows(focus_file, _list_focus(charges, prices, credentials))
        _note_missing(charges, focus_file)
    if as_json:
        print_json(build_document(report, budgets, prices.currency, by.value))
    else:
        typer.echo("\n".join(cost_lines(report, budgets, prices.currency, by.value)))


def check_outputs(prices: Path, *files: Path | None) -> None:
    """Raise UsageError if a file would replace the prices or another file of the command."""
    taken = {prices.resolve()}
    for path in files:
        if path is not None:
            if path.resolve() in taken:
                raise UsageError(f"{path} would overwrite another file of this command")
            taken.add(path.resolve())


def find_prices(path: Path, focus_file: Path | None) -> PriceList:
    """The prices in a file. Without it none is known, and the command says how to get prices.

    Raises TerminalError if FOCUS is asked for without prices, which it cannot do without.
    """
    prices = load_prices(path)
    if prices is not None:
        return prices
    remedy = f"write {path}. `hostelry cost --example-prices` prints an example"
    if focus_file is not None:
        raise TerminalError(f"--focus {focus_file} needs prices: {remedy}")
    typer.echo(f"No cost is known without prices: {remedy}.", err=True)
    return NO_PRICES


def note_unknown_types(path: Path, prices: PriceList, used: Collection[str | None]) -> None:
    """Warn of prices of instance types that SageMaker does not have and that nothing used."""
    for fault in list_unknown_types(prices, used):
        typer.echo(f"warning: {path}: {fault}", err=True)


def _list_focus(
    charges: Sequence[Charge], prices: PriceList, credentials: Credentials
) -> Iterable[Sequence[str]]:
    account, region = credentials.account_id, credentials.region
    return list_focus_rows(charges, prices.currency, account, region)


def _note_missing(charges: Sequence[Charge], path: Path) -> None:
    num = sum(it.amount is None for it in charges)
    if num:
        typer.echo(f"{num} charges of an unknown price are not in {path}.", err=True)


def write_rows(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV file. Raises TerminalError if that is impossible."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    try:
        write_whole(path, text.getvalue().encode(), durable=False)
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None
