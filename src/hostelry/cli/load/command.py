"""`hostelry load`: a load test through the gateway."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
import typer

from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli import completion as names
from hostelry.cli.calls.chat import Conversation, lacks_template
from hostelry.cli.calls.invoke import GRACE_S, AnswerSink, call_model, guess_content_type, read_body
from hostelry.cli.calls.llm_calls import JSON, ModelAnswerError, find_with_fallback, openai_calls
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.load.measures import (
    LoadTally,
    comparison_lines,
    progress_line,
    result_document,
    result_lines,
    saved_result,
)
from hostelry.cli.load.requests import LoadRequests, invocation_requests, openai_requests
from hostelry.cli.named import NamedModel, api_errors, called_model, find_named
from hostelry.cli.printable import CLEAR_LINE
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig

PROMPT = "Write a short story about a lighthouse."
MAX_REQUESTS = 10_000_000  # in one test, which keeps a few numbers per request
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
    name: Annotated[
        str,
        typer.Argument(
            help="Endpoint, component, or COMPONENT:ADAPTER.", autocompletion=names.served
        ),
    ],
    concurrency: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of concurrent requests.")
    ] = 4,
    rate: RateOption = None,
    duration: Annotated[
        float, typer.Option(min=0.1, max=86_400.0, help="Duration in seconds.")
    ] = 10.0,
    prompt: Annotated[
        str | None, typer.Option(help="Prompt for an LLM. Default: a request for a story.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum number of tokens per answer.")
    ] = 64,
    body: BodyOption = None,
    content_type: ContentTypeOption = None,
    adapters: Annotated[
        str | None, typer.Option(help="Adapters to use in turn, separated by commas.")
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Write the result to this file, as JSON.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Compare with a result that --save wrote.")
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send load to a model, and measure throughput, latency, token times and errors.

    Without --rate each connection sends its next request after the last answer. With --rate
    requests are sent at even times, whether or not earlier requests were answered, and latency
    counts from the planned time. Ctrl-C ends the test early and prints the figures.

    A first request, which is not counted, checks that the model answers. If this client limits the
    load, the result says so.

    Exit code 1 if the first request fails, or no request was answered.

    Example: hostelry load llama --concurrency 8 --duration 30 --save before.json

    Example: hostelry load wine --body rows.csv --rate 200 --concurrency 50 --compare before.json
    """
    if rate is not None and rate * duration > MAX_REQUESTS:
        raise TerminalError(f"{rate:g} requests/s for {duration:g} s are over {MAX_REQUESTS}")
    before = None if compare is None else saved_result(compare)
    if save is not None and not save.absolute().parent.is_dir():
        raise UsageError(f"--save {save}: there is no folder {save.absolute().parent}")
    place = home_at(home)
    config, credentials = load_home(place)
    asked = LoadQuestion(prompt, max_tokens, body, content_type)
    chosen = partial(load_models, name=name, adapters=adapters)
    models = find_with_fallback(place, config, credentials, chosen)
    with api_errors(config):
        requests = load_requests(config, credentials, models, asked)
    tally = run_test(config, requests, concurrency, rate, duration)
    sent = {"concurrency": concurrency, "rate": rate, "duration": duration}
    options = {**sent, "adapters": adapters, **asked.options}
    at = datetime.fromtimestamp(SystemClock().now(), UTC).isoformat(timespec="seconds")
    report(result_document(tally, name, options, at), before, save, as_json=as_json)


def run_test(
    config: UpConfig,
    requests: LoadRequests,
    concurrency: int,
    rate: float | None,
    duration_s: float,
) -> LoadTally:
    """Run a load test, with its state shown meanwhile, and return the measures."""
    from hostelry.cli.load.runner import LoadPlan, run_load  # uvloop: completion does not need it

    address = urlsplit(config.gateway_url)
    plan = LoadPlan(
        host=address.hostname or config.host,
        port=config.gateway_port,
        concurrency=concurrency,
        duration_s=duration_s,
        rate_per_s=rate,
        timeout_s=config.stream_timeout_s if requests.streams_text else config.invoke_timeout_s,
    )
    tally = run_load(plan, requests, shown_progress)
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
    return tally


def report(
    result: dict[str, Any], before: dict[str, Any] | None, save: Path | None, *, as_json: bool
) -> None:
    """Save and print a result. Raises TerminalError if no request was answered."""
    if save is not None:
        try:
            save.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
        except OSError as error:
            typer.echo(f"hostelry: {save} cannot be written: {error.strerror}", err=True)
    if as_json:
        print_json(result if before is None else {**result, "before": before})
    else:
        lines = result_lines(result)
        if before is not None:
            lines += ["", *comparison_lines(before, result)]
        typer.echo("\n".join(lines))
    if not result["ok"]:
        raise TerminalError(f"none of {result['requests']} requests was answered")


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
    return openai_requests(config, credentials, names, body)


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
    return invocation_requests(config, credentials, models, content, kind)


def shown_progress(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    """Show the state of a running test on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.write(progress_line(tally, elapsed_s, in_flight))
        sys.stderr.flush()
