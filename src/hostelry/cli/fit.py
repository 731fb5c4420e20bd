"""`hostelry fit`: the hosting options for a mix of models, simulated and ranked."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli import completion as names
from hostelry.cli.home_option import HomeOption, JsonOption, print_json
from hostelry.cost.prices import PriceList
from hostelry.home.price_file import list_unknown_types, load_prices

if TYPE_CHECKING:
    from hostelry.advisor.advice import GroupAdvice
    from hostelry.advisor.values import FitMix

FileArgument = Annotated[
    Path | None, typer.Argument(help="TOML file with models, machines and targets.")
]
ExampleOption = Annotated[
    bool, typer.Option("--example", help="Print an example with every field and exit.")
]
PricesOption = Annotated[
    Path | None,
    typer.Option(
        help="Price file of `hostelry cost`, for prices that FILE leaves out.",
        show_default=False,
    ),
]
GroupOption = Annotated[
    bool,
    typer.Option(
        "--group", help="Divide models by framework, size and peaks, and advise each group."
    ),
]
ChartOption = Annotated[
    Path | None,
    typer.Option("--svg", help="Write the chart to this file.", show_default=False),
]
PictureOption = Annotated[
    Path | None,
    typer.Option(
        "--png",
        help="Write the chart to this file as PNG (extra `charts`).",
        show_default=False,
    ),
]
DocumentOption = Annotated[
    Path | None,
    typer.Option(
        "--write",
        metavar="FILE",
        help="Write the document for `hostelry apply` that deploys the choice.",
        show_default=False,
    ),
]
FromLiveOption = Annotated[
    bool,
    typer.Option(
        "--from-live",
        help="Write the mix of the running deployment to --out, from its records, and advise.",
    ),
]
AgainstLiveOption = Annotated[
    bool,
    typer.Option(
        "--against-live",
        help="Simulate the deployment with FILE's numbers, and compare with its records.",
    ),
]
EndpointOption = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint",
        "-e",
        help="Read only this running endpoint. Can be repeated.",
        autocompletion=names.endpoints,
    ),
]
LastOption = Annotated[
    str | None,
    typer.Option(
        help="Length of the records in whole hours, days or weeks: 24h, 7d, 4w. Default: 7d.",
        show_default=False,
    ),
]
OutOption = Annotated[
    Path, typer.Option(help="File that --from-live writes. Its calls are next to it as CSV.")
]


def fit(  # noqa: PLR0913 - the options of a command
    file: FileArgument = None,
    example: ExampleOption = False,
    prices: PricesOption = None,
    group: GroupOption = False,
    svg: ChartOption = None,
    png: PictureOption = None,
    write_to: DocumentOption = None,
    from_live: FromLiveOption = False,
    against_live: AgainstLiveOption = False,
    endpoint: EndpointOption = None,
    last: LastOption = None,
    out: OutOption = Path("live.toml"),
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the hosting option for models: dedicated endpoints, components, multi-model and more.

    Options that cannot work are named with the reason. Each other option is simulated with the
    platform's own policies, placement and routing, and ranked by your targets and weights. Needs no
    running platform, except with --from-live and --against-live.

    Example: hostelry fit --example > mix.toml

    Example: hostelry fit mix.toml --svg mix.svg --write mix.yaml

    Example: hostelry fit --from-live --last 7d --out shop.toml

    Example: hostelry fit shop.toml --against-live --last 24h
    """
    # Imported here, because no other command needs the simulator and numpy.
    from hostelry.advisor.mix_file import example_text, read_mix
    from hostelry.advisor.prices import fill_prices
    from hostelry.cli import fit_text
    from hostelry.cli.live import run, text

    if example:
        typer.echo(example_text(), nl=False)
        return
    reads_live = from_live or against_live
    _check_live_options(file, from_live=from_live, against_live=against_live)
    if from_live and out.suffix == ".csv":
        raise UsageError(f"--out {out} is the place of the calls: name a file such as live.toml")
    if (endpoint or last) and not reads_live:
        raise UsageError("--endpoint and --last go with --from-live or --against-live")
    outputs = {"--svg": svg, "--png": png, "--write": write_to}
    if against_live and (group or any(outputs.values())):
        raise UsageError(
            "--group, --svg, --png and --write do not go with --against-live: no advice"
        )
    _check_outputs(out if file is None else file, outputs)
    given = None if prices is None else read_prices(prices)
    live = run.read_input(home, endpoint or (), last, show_progress) if reads_live else None
    if live is not None and from_live:
        run.write_files(live, given, out)
        show_progress(f"written to {out}")
    mix = read_mix(out if file is None else file)
    mix = mix if given is None else fill_prices(mix, given)
    compared = [] if live is None else run.compare(live, mix)
    lines = [] if live is None else [*text.list_lines(live, compared, is_same=from_live)]
    report = {} if live is None else {"live": run.build_report(live, compared)}
    if against_live:
        print_report(report, lines, as_json=as_json)
        return
    from hostelry.advisor.advice import advise
    from hostelry.advisor.traffic import load_traffic

    traffic, notes = load_traffic(mix)
    advice = advise(mix, traffic, show_progress, splits=group)
    report = {**fit_text.build_report(mix, advice, notes), **report}
    lines += [*([""] if lines else []), *fit_text.list_lines(mix, advice, notes)]
    print_report(report, lines, as_json=as_json)
    _write_outputs(outputs, mix, advice, (out if file is None else file).name)


def _write_outputs(
    outputs: Mapping[str, Path | None], mix: "FitMix", advice: Sequence["GroupAdvice"], name: str
) -> None:
    # Imported here, because no other command needs the simulator and numpy.
    from hostelry.advisor.advice import build_choice
    from hostelry.advisor.chart import build_svg
    from hostelry.cli import fit_text

    if (svg := outputs["--svg"]) is not None:
        write_bytes(svg, build_svg(advice).encode())
    if (png := outputs["--png"]) is not None:
        write_bytes(png, load_drawing()(build_svg(advice)))
    if (document := outputs["--write"]) is not None:
        text = fit_text.format_document(build_choice(mix, advice), name)
        write_bytes(document, text.encode())


def _check_live_options(file: Path | None, *, from_live: bool, against_live: bool) -> None:
    if from_live and against_live:
        raise UsageError("--from-live compares, too: leave --against-live out")
    if from_live and file is not None:
        raise UsageError(
            f"--from-live writes a file and reads none: leave {file} out, or use --out"
        )
    if file is None and not from_live:
        raise UsageError("name a file; `hostelry fit --example` prints one")


def load_drawing() -> Callable[[str], bytes]:
    """The function that draws a PNG. Raises TerminalError if its packages are not installed."""
    try:
        # Imported here: only pictures need these packages, which are an extra.
        from hostelry.cli.chart_image import draw_png
    except ImportError as error:
        raise TerminalError(
            f"--png needs {error.name}, which is not installed: install hostelry[charts], or use"
            " --svg"
        ) from None
    return draw_png


def _check_outputs(mix: Path, outputs: Mapping[str, Path | None]) -> None:
    """Raise before the simulation: the outputs have a place each, and not the mix's."""
    if outputs["--png"] is not None:
        load_drawing()
    taken = {mix.resolve()}
    for name, path in outputs.items():
        if path is None:
            continue
        if path.resolve() in taken:
            raise UsageError(f"{name} {path} would overwrite another file of this command")
        if not path.absolute().parent.is_dir():
            folder = path.absolute().parent
            raise UsageError(f"{path} cannot be written: there is no folder {folder}")
        taken.add(path.resolve())


def show_progress(text: str) -> None:
    """Print progress on standard error."""
    typer.echo(text, err=True)


def print_report(report: Mapping[str, Any], lines: Sequence[str], *, as_json: bool) -> None:
    """Print a report as JSON or as text."""
    if as_json:
        print_json(dict(report))
    else:
        typer.echo("\n".join(lines))


def read_prices(path: Path) -> PriceList:
    """The prices in a file. Raises TerminalError if it does not exist or is invalid.

    Instance types that do not exist are warned of.
    """
    found = load_prices(path)
    if found is None:
        raise TerminalError(f"{path} does not exist; `hostelry cost --example-prices` prints one")
    for fault in list_unknown_types(found):
        show_progress(f"warning: {path}: {fault}")
    return found


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file. Raises TerminalError if that is impossible."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None
    typer.echo(f"written to {path}", err=True)
