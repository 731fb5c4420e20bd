"""`hostelry load`: a load test through the gateway."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec
import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import CLEAR_LINE
from hostelry.cli import completion as names
from hostelry.cli.calls.chat import Conversation, lacks_template
from hostelry.cli.calls.invoke import GRACE_S, AnswerSink, call_model, guess_content_type, read_body
from hostelry.cli.calls.llm_calls import JSON, find_with_fallback, openai_calls
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.load.find import (
    MAX_CONCURRENCY,
    STEP_S,
    FindOption,
    FindOptions,
    MaxErrorsOption,
    MaxFirstTokenOption,
    MaxLatencyOption,
    MaxTokenOption,
    PercentileOption,
    best_tally,
    check_find_options,
    check_tokens,
    search_document,
    search_lines,
    show_search_progress,
    show_step,
)
from hostelry.cli.load.result import (
    comparison_lines,
    progress_line,
    result_lines,
    saved_result,
)
from hostelry.cli.named import NamedModel, api_errors, called_model, find_named
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.loadtest.answers import ModelAnswerError
from hostelry.loadtest.requests import (
    GatewayAccess,
    InvokedModel,
    LoadPlan,
    LoadRequests,
    invocation_requests,
    openai_requests,
)
from hostelry.loadtest.runner import LoadRun, LoadSearch
from hostelry.loadtest.search import SearchCause, SearchSettings
from hostelry.loadtest.tally import LoadTally, result_document

PROMPT = "Write a short story about a lighthouse."
MAX_REQUESTS = 10_000_000  # in one test, which keeps a few numbers per request
CONCURRENCY = 4
DURATION_S = 10.0
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
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
MaxTokensOption = Annotated[int, typer.Option(min=1, help="Maximum number of tokens per answer.")]
AdaptersOption = Annotated[
    str | None, typer.Option(help="Adapters to use in turn, separated by commas.")
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
    max_tokens: MaxTokensOption = 64,
    body: BodyOption = None,
    content_type: ContentTypeOption = None,
    adapters: AdaptersOption = None,
    find: FindOption = False,
    max_latency_ms: MaxLatencyOption = None,
    max_first_token_ms: MaxFirstTokenOption = None,
    max_token_ms: MaxTokenOption = None,
    max_errors_percent: MaxErrorsOption = None,
    percentile: PercentileOption = None,
    save: SaveOption = None,
    compare: CompareOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send load to a model, and measure throughput, latency, token times and errors.

    Without --rate each connection sends its next request after the last answer. With --rate
    requests are sent at even times, whether or not earlier requests were answered, and latency
    counts from the planned time. Ctrl-C ends the test early and prints the figures.

    A first request, which is not counted, checks that the model answers. If this client limits the
    load, the result says so.

    With --find the concurrency grows from 1 to at most --concurrency, and the result names the
    highest concurrency at which all limits hold. At least one limit is required.

    Exit code 1 if the first request fails, no request was answered, or --find finds nothing.

    Example: hostelry load llama --concurrency 8 --duration 30 --save before.json

    Example: hostelry load wine --body rows.csv --rate 200 --concurrency 50 --compare before.json

    Example: hostelry load llama --find --max-first-token-ms 500 --max-token-ms 50
    """
    limits = FindOptions(
        max_latency_ms, max_first_token_ms, max_token_ms, max_errors_percent, percentile
    )
    check_find_options(limits, rate, finds=find)
    concurrency = concurrency or (MAX_CONCURRENCY if find else CONCURRENCY)
    duration = duration or (STEP_S if find else DURATION_S)
    if rate is not None and rate * duration > MAX_REQUESTS:
        raise TerminalError(f"{rate:g} requests/s for {duration:g} s are over {MAX_REQUESTS}")
    output = LoadOutput(None if compare is None else saved_result(compare), save, as_json)
    if save is not None and not save.absolute().parent.is_dir():
        raise UsageError(f"--save {save}: there is no folder {save.absolute().parent}")
    place = home_at(home)
    config, credentials = load_home(place)
    asked = LoadQuestion(prompt, max_tokens, body, content_type)
    chosen = partial(load_models, name=name, adapters=adapters)
    models = find_with_fallback(place, config, credentials, chosen)
    with api_errors(config):
        requests = load_requests(config, credentials, models, asked)
    plan = load_plan(config, requests, concurrency, rate, duration)
    sent = {"concurrency": concurrency, "rate": rate, "duration": duration}
    options = {**sent, "adapters": adapters, **asked.options}
    if find:
        test = LoadTest(name, {**options, **limits.as_json}, plan, requests)
        find_concurrency(test, limits, output)
    else:
        run_test(LoadTest(name, options, plan, requests), output)


@dataclass(frozen=True, slots=True)
class LoadOutput:
    """The place of a result, and the earlier result that it is compared with."""

    before: dict[str, Any] | None
    save: Path | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class LoadTest:
    """A test of a model, with the options that its result names."""

    target: str
    options: dict[str, Any]
    plan: LoadPlan
    requests: LoadRequests

    def build_document(self, tally: LoadTally) -> dict[str, Any]:
        """The result as JSON values."""
        at = datetime.fromtimestamp(SystemClock().now(), UTC).isoformat(timespec="seconds")
        return result_document(tally, self.target, self.options, at)


def load_plan(
    config: UpConfig,
    requests: LoadRequests,
    concurrency: int,
    rate: float | None,
    duration_s: float,
) -> LoadPlan:
    """The plan of a test of the platform's gateway."""
    address = urlsplit(config.gateway_url)
    return LoadPlan(
        host=address.hostname or config.host,
        port=config.gateway_port,
        concurrency=concurrency,
        duration_s=duration_s,
        rate_per_s=rate,
        timeout_s=config.stream_timeout_s if requests.streams_text else config.invoke_timeout_s,
    )


def run_test(test: LoadTest, output: LoadOutput) -> None:
    """Run a load test, with its state shown meanwhile, and report its result."""
    tally = run_until_interrupt(LoadRun(test.plan, test.requests, show_progress))
    clear_progress()
    result = test.build_document(tally)
    report(result, result_lines(result), output)
    if not result["ok"]:
        raise TerminalError(f"none of {result['requests']} requests was answered")


def find_concurrency(test: LoadTest, options: FindOptions, output: LoadOutput) -> None:
    """Search for the highest concurrency that keeps the limits, and report it.

    Raises TerminalError without a result, or if the model stopped answering.
    """
    check_tokens(options, streams_text=test.requests.streams_text)
    plan = test.plan
    settings = SearchSettings(
        limits=options.limits, max_concurrency=plan.concurrency, step_s=plan.duration_s
    )
    show = partial(partial, show_search_progress)
    search = LoadSearch(plan, test.requests, settings, show, show_step)
    steps, outcome = run_until_interrupt(search)
    clear_progress()
    result = search_document(settings, steps, outcome, test.build_document(best_tally(outcome)))
    report(result, search_lines(test.target, settings, steps, outcome), output)
    if outcome.cause is SearchCause.NO_ANSWERS:
        raise TerminalError(f"{test.target} stopped answering during the search")
    if outcome.best is None:
        raise TerminalError("no concurrency was found at which the limits hold")


class Interruptible(Protocol[T_co]):
    """A load test that Ctrl-C ends early."""

    async def measure(self) -> T_co:
        """Run the test, and return its result."""

    def interrupt(self) -> None:
        """End the test early, with the result so far."""


def run_until_interrupt(test: Interruptible[T]) -> T:
    """Run a load test. Ctrl-C ends it early."""
    import uvloop  # completion does not need it

    async def measure() -> T:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, test.interrupt)
        try:
            return await test.measure()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    return uvloop.run(measure())


def clear_progress() -> None:
    """Remove the line with the state of a test from a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)


def report(result: dict[str, Any], lines: list[str], output: LoadOutput) -> None:
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


@dataclass(frozen=True, slots=True)
class LoadQuestion:
    """The content of each request: a prompt, or a file's bytes."""

    prompt: str | None
    max_tokens: int
    file: str | None
    content_type: str | None

    @property
    def text(self) -> str:
        """The prompt."""
        return self.prompt or PROMPT

    @property
    def options(self) -> dict[str, Any]:
        """The options that describe the question in a result."""
        if self.file is not None:
            return {"body": self.file}
        return {"prompt": self.text, "max_tokens": self.max_tokens}


def load_models(sagemaker: Any, name: str, adapters: str | None) -> list[NamedModel]:
    """The models that requests are sent to in turn: the named model, or its adapters."""
    base = called_model(sagemaker, name)
    if adapters is None:
        return [base]
    if base.component is None or base.adapter is not None or base.base is not None:
        raise UsageError(f"--adapters needs a base component, which {name} is not")
    names = [it.strip() for it in adapters.split(",") if it.strip()]
    if not names:
        raise UsageError("--adapters is empty: name them as a,b,c")
    return [find_named(sagemaker, f"{base.component}:{it}") for it in names]


def load_requests(
    config: UpConfig, credentials: Credentials, models: Sequence[NamedModel], asked: LoadQuestion
) -> LoadRequests:
    """Build the requests of a test, after a first request succeeded. Raises TerminalError."""
    if asked.file is not None:
        if asked.prompt is not None:
            raise UsageError("--prompt and --body are two questions: give one")
        content = read_body(asked.file, config.max_body_bytes)
        name = None if asked.file == "-" else asked.file
        kind = asked.content_type or guess_content_type(name, content)
        return invocations(config, credentials, models, content, kind)
    talk = Conversation(settings={"max_tokens": asked.max_tokens})
    if models[0].component is None:
        body = talk.body("", asked.text)
        for member in ("model", "stream", "stream_options"):
            del body[member]
        return invocations(config, credentials, models, msgspec.json.encode(body), JSON)
    calls, names = openai_calls(config, credentials), [it.openai_model for it in models]
    try:
        calls.answer(talk.body(names[0], asked.text), lambda _: None)
    except ModelAnswerError as error:
        if not lacks_template(str(error)):
            raise TerminalError(f"the first request failed: {error}") from None
        talk.has_template = False
    body = talk.body("", asked.text)
    del body["model"]
    return openai_requests(gateway_access(config, credentials), names, body)


def invocations(
    config: UpConfig,
    credentials: Credentials,
    models: Sequence[NamedModel],
    content: bytes,
    kind: str,
) -> LoadRequests:
    """Build invocations with this body, after a first one succeeded. Raises TerminalError."""
    packed = next((it for it in models if it.adapter is not None), None)
    if packed is not None:
        raise TerminalError(
            f"adapter {packed.adapter} is inside the archive, which a body chooses by its own "
            "member `adapters`: leave it out of the options, or use --prompt"
        )
    limit_s = config.invoke_timeout_s + GRACE_S
    runtime = aws_client("sagemaker-runtime", config, credentials, read_timeout_s=limit_s)
    first = {"EndpointName": models[0].endpoint, "Body": content, "ContentType": kind}
    if models[0].component:
        first["InferenceComponentName"] = models[0].component
    facts = call_model(runtime.invoke_endpoint, first, AnswerSink(keeps=True))
    if facts.error is not None:
        raise TerminalError(f"the first request failed: {facts.error}")
    access = gateway_access(config, credentials)
    invoked = [InvokedModel(it.endpoint, it.component) for it in models]
    return invocation_requests(access, invoked, content, kind)


def gateway_access(config: UpConfig, credentials: Credentials) -> GatewayAccess:
    """The platform's gateway and the keys of its account."""
    return GatewayAccess(
        url=config.gateway_url,
        region=credentials.region,
        access_key_id=credentials.access_key_id,
        secret_access_key=credentials.secret_access_key,
        openai_api_key=credentials.openai_api_key,
    )


def show_progress(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    """Show the state of a running test on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.write(progress_line(tally, elapsed_s, in_flight))
        sys.stderr.flush()
