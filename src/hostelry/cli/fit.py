"""`hostelry fit`: the hosting options for a mix of models, simulated and ranked."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.home_option import JsonOption, print_json
from hostelry.cost.prices import PriceList
from hostelry.home.price_file import load_prices


def fit(
    file: Annotated[
        Path | None, typer.Argument(help="TOML file with models, machines and targets.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print an example with every field and exit.")
    ] = False,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Price file of `hostelry cost`, for prices that FILE leaves out.",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        bool,
        typer.Option(
            "--group",
            help="Divide models by framework, size and peaks, and advise each group.",
        ),
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(help="Write the chart to this file.", show_default=False)
    ] = None,
    write_to: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Write the document for `hostelry apply` that deploys the choice.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the hosting option for models: dedicated endpoints, components, multi-model and more.

    Options that cannot work are named with the reason. Each other option is simulated with the
    platform's own policies, placement and routing, and ranked by your targets and weights. Needs no
    running platform.

    Example: hostelry fit --example > mix.toml

    Example: hostelry fit mix.toml --svg mix.svg --write mix.yaml
    """
    # Imported here, because no other command needs the simulator and numpy.
    from hostelry.advisor.mix_file import example_text, read_mix
    from hostelry.cli import fit_text

    if example:
        typer.echo(example_text(), nl=False)
        return
    if file is None:
        raise UsageError("name a file; `hostelry fit --example` prints one")
    from hostelry.advisor.advice import advise, build_choice
    from hostelry.advisor.chart import build_svg
    from hostelry.advisor.prices import fill_prices
    from hostelry.advisor.traffic import load_traffic

    mix = read_mix(file)
    if prices is not None:
        mix = fill_prices(mix, read_prices(prices))
    traffic, notes = load_traffic(mix)
    advice = advise(mix, traffic, lambda text: typer.echo(text, err=True), splits=group)
    if as_json:
        print_json(fit_text.build_report(mix, advice, notes))
    else:
        typer.echo("\n".join(fit_text.list_lines(mix, advice, notes)))
    if svg is not None:
        write_text(svg, build_svg(advice))
    if write_to is not None:
        write_text(write_to, fit_text.format_document(build_choice(mix, advice), file.name))


def read_prices(path: Path) -> PriceList:
    """The prices in a file. Raises TerminalError if it does not exist or is invalid."""
    found = load_prices(path)
    if found is None:
        raise TerminalError(f"{path} does not exist; `hostelry cost --example-prices` prints one")
    return found


def write_text(path: Path, text: str) -> None:
    """Write a file. Raises TerminalError if that is impossible."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None
    typer.echo(f"written to {path}", err=True)
