"""`hostelry load`: a load test through the gateway."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from hostelry.base.errors import INTERRUPTED, TerminalError, UsageError
from hostelry.cli import completion as names
from hostelry.cli.calls.llm_calls import find_with_fallback
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.load.find import (
    FindOption,
    FindOptions,
    MaxErrorsOption,
    MaxFirstTokenOption,
    MaxLatencyOption,
    MaxTokenOption,
    PercentileOption,
    check_find_options,
)
from hostelry.cli.load.measure import (
    LoadResult,
    LoadTest,
    format_now,
    measure_load,
    search_load,
)
from hostelry.cli.load.options import LoadOptions
from hostelry.cli.load.question import LoadQuestion, load_models, load_requests
from hostelry.cli.load.result import comparison_lines, saved_result
from hostelry.cli.load.sweep import (
    SweepCell,
    SweptOption,
    build_cells,
    read_sweeps,
    sweep_document,
    sweep_lines,
)
from hostelry.cli.named import NamedModel, api_errors
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.loadtest.requests import LoadPlan, LoadRequests
from hostelry.loadtest.tally import FORMAT

NameArgument = Annotated[
    str,
    typer.Argument(help="Endpoint, component, or COMPONENT:ADAPTER.", autocompletion=names.served),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10_000,
        help="Maximum number of concurrent requests. Default: 4, with --find 256",
        show_default=False,
    ),
]
DurationOption = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=86_400.0,
        help="Duration in seconds. With --find: the longest time of one concurrency. Default: 10, "
        "with --find 20",
        show_default=False,
    ),
]
PromptOption = Annotated[
    str | None, typer.Option(help="Prompt for an LLM. Default: a request for a story.")
]
CharactersOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=10_000_000,
        help="Length of the prompt, which is repeated or cut.",
        show_default=False,
    ),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option(
        min=1, help="Maximum number of tokens per answer. Default: 64", show_default=False
    ),
]
AdaptersOption = Annotated[
    str | None, typer.Option(help="Adapters to use in turn, separated by commas.")
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sweep",
        metavar="OPTION=VALUE,VALUE",
        help="Measure each value: of an option of the load, or of copies, cpus, memory-mb, "
        "instance-type or env:NAME, which deploys temporary copies of the model. Can be repeated.",
        show_default=False,
    ),
]
SaveOption = Annotated[Path | None, typer.Option(help="Write the result to this file, as JSON.")]
CompareOption = Annotated[
    Path | None, typer.Option(help="Compare with a result that --save wrote.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        help=(
            "Requests per second, at fixed times. Default: each client sends after its last answer."
        ),
    ),
]
BodyOption = Annotated[
    str | None,
    typer.Option(help="File to send as the body, for any model. Use - for standard input."),
]
ContentTypeOption = Annotated[
    str | None,
    typer.Option(
        help="Content type of the file. Default: guessed from its name.", show_default=False
    ),
]


def load(  # noqa: PLR0913 - a command's options
    name: NameArgument,
    concurrency: ConcurrencyOption = None,
    rate: RateOption = None,
    duration: DurationOption = None,
    prompt: PromptOption = None,
    prompt_characters: CharactersOption = None,
    max_tokens: MaxTokensOption = None,
    body: BodyOption = None,
    content_type: ContentTypeOption = None,
    adapters: AdaptersOption = None,
    find: FindOption = False,
    max_latency_ms: MaxLatencyOption = None,
    max_first_token_ms: MaxFirstTokenOption = None,
    max_token_ms: MaxTokenOption = None,
    max_errors_percent: MaxErrorsOption = None,
    percentile: PercentileOption = None,
    sweep: SweepOption = None,
    save: SaveOption = None,
    compare: CompareOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send load to a model, and measure throughput, latency, token times and errors.

    Without --rate each connection sends its next request after the last answer. With --rate
    requests are sent at even times, whether or not earlier requests were answered, and latency
    counts from the planned time. Ctrl-C ends the test early and prints the figures. A sweep
    then exits with code 130.

    A first request, which is not counted, checks that the model answers. If this client limits the
    load, the result says so.

    With --find the concurrency grows from 1 to at most --concurrency, and the result names the
    highest concurrency at which all limits hold. At least one limit is required.

    With --sweep each combination of values is measured, or searched with --find, and the result is
    a table.

    Exit code 1 if the first request fails, no request was answered, or --find finds nothing. With
    --sweep: if this is true of all combinations.

    Example: hostelry load llama --concurrency 8 --duration 30 --save before.json

    Example: hostelry load wine --body rows.csv --rate 200 --concurrency 50 --compare before.json

    Example: hostelry load llama --find --max-first-token-ms 500 --max-token-ms 50

    Example: hostelry load llama --sweep concurrency=1,2,4,8 --sweep env:OPTION_DTYPE=fp32,bf16
    """
    limits = FindOptions(
        max_latency_ms, max_first_token_ms, max_token_ms, max_errors_percent, percentile
    )
    check_find_options(limits, rate, finds=find)
    question = LoadQuestion(prompt, prompt_characters, max_tokens, body, content_type)
    options = LoadOptions(adapters, concurrency, rate, duration, question, limits if find else None)
    swept = read_sweeps(sweep or [], finds=find)
    check_options(swept, options, compare)
    output = LoadOutput(None if compare is None else saved_result(compare), save, as_json)
    place = home_at(home)
    running = load_home(place)
    chosen = partial(load_models, name=name, adapters=adapters)
    platform = LoadPlatform(name, running, find_with_fallback(place, *running, chosen))
    if swept:
        run_sweep(place, platform, options, swept, output)
    else:
        run_test(platform, options, output)


def check_options(swept: Sequence[SweptOption], options: LoadOptions, compare: Path | None) -> None:
    """Raise UsageError if the options do not fit together."""
    if swept and compare is not None:
        raise UsageError("--compare is for one result, and --sweep has several: give one")
    if options.adapters is not None and any(it.needs_copy for it in swept):
        raise UsageError("--adapters: the copies of a sweep have no adapters")
    names = {it.name for it in swept}
    if options.question.content_type and options.question.file is None and "body" not in names:
        raise UsageError("--content-type is for the file of --body: give --body")
    if swept and options.question.file == "-":
        raise UsageError("--body - can be read once, and --sweep sends it again: name a file")
    for one in swept:
        if options.find_given(one.name) is not None:
            raise UsageError(f"--{one.name} and --sweep {one.name} are given: give one")
        for value in one.values if one.name == "body" else ():
            if not Path(str(value)).is_file():
                raise UsageError(f"--sweep body={value}: there is no such file")
    for cell in build_cells(swept):
        options.replace_values(cell.values)


class LoadOutput(msgspec.Struct, frozen=True):
    """The place of a result, and the earlier result that it is compared with."""

    before: dict[str, Any] | None
    save: Path | None
    as_json: bool

    def __post_init__(self) -> None:
        """Raise UsageError if the folder of the result is missing."""
        if self.save is not None and not self.save.absolute().parent.is_dir():
            folder = self.save.absolute().parent
            raise UsageError(f"--save {self.save}: there is no folder {folder}")


class LoadPlatform(msgspec.Struct, frozen=True):
    """A running platform, and its models that NAME stands for."""

    name: str
    running: tuple[UpConfig, Credentials]
    models: Sequence[NamedModel]

    def measure(self, options: LoadOptions, models: Sequence[NamedModel]) -> LoadResult:
        """Run one test or one search of these models. Raises TerminalError."""
        config, credentials = self.running
        with api_errors(config):
            requests = load_requests(config, credentials, models, options.question)
        plan = load_plan(config, requests, options)
        test = LoadTest(self.name, options.as_json, plan, requests)
        if options.limits is None:
            return measure_load(test)
        return search_load(test, options.limits)


def load_plan(config: UpConfig, requests: LoadRequests, options: LoadOptions) -> LoadPlan:
    """The plan of a test of the platform's gateway."""
    address = urlsplit(config.gateway_url)
    return LoadPlan(
        host=address.hostname or config.host,
        port=config.gateway_port,
        concurrency=options.num_connections,
        duration_s=options.duration_s,
        rate_per_s=options.rate,
        timeout_s=config.stream_timeout_s if requests.streams_text else config.invoke_timeout_s,
    )


def run_test(platform: LoadPlatform, options: LoadOptions, output: LoadOutput) -> None:
    """Run one test or one search, and report it. Raises TerminalError if it has no result."""
    result = platform.measure(options, platform.models)
    report(result.document, result.lines, output)
    if result.problem is not None:
        raise TerminalError(result.problem)


def run_sweep(
    place: Home,
    platform: LoadPlatform,
    options: LoadOptions,
    swept: Sequence[SweptOption],
    output: LoadOutput,
) -> None:
    """Measure each cell of a sweep, and report the table. Raises TerminalError without results."""
    # Completion does not need these modules.
    from hostelry.cli.load.model_copy import model_copies
    from hostelry.cli.load.sweep_run import Sweep

    def measure(cell: SweepCell, models: Sequence[NamedModel]) -> LoadResult:
        return platform.measure(options.replace_values(cell.values), models)

    open_copies = partial(model_copies, place, platform.running, platform.models[0])
    sweep = Sweep(platform.models, swept, measure, open_copies)
    results, is_interrupted = sweep.measure_cells()
    head = {
        "format": FORMAT,
        "target": platform.name,
        "at": format_now(),
        "options": {
            key: value
            for key, value in options.as_json.items()
            if key.replace("_", "-") not in {it.name for it in swept}
        },
    }
    lines = sweep_lines(platform.name, swept, results, len(build_cells(swept)))
    report(sweep_document(head, swept, results), lines, output)
    if is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if all(it.problem is not None for it in results):
        raise TerminalError("no combination was measured without a problem")


def report(result: Mapping[str, Any], lines: Sequence[str], output: LoadOutput) -> None:
    """Save a result, and print it as `lines` or as JSON."""
    before, save = output.before, output.save
    if save is not None:
        try:
            save.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
        except OSError as error:
            typer.echo(f"hostelry: {save} cannot be written: {error.strerror}", err=True)
    if output.as_json:
        print_json(result if before is None else {**result, "before": before})
        return
    if before is not None:
        lines = [*lines, "", *comparison_lines(before, result)]
    typer.echo("\n".join(lines))
