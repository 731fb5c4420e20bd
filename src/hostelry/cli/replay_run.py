"""Execution of `hostelry replay`. Imports numpy and the simulator."""

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import typer
from botocore.exceptions import BotoCoreError, ClientError
from msgspec.structs import replace

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.home_option import home_at, load_home, print_json
from hostelry.cli.status_text import columns
from hostelry.domain.shape import Requirements
from hostelry.home.aws_client import aws_client
from hostelry.sim.fleet import SimulatedDeployment
from hostelry.sim.ledger import SimulatedAct
from hostelry.sim.outcome import ReplayOutcome, replay_trace
from hostelry.sim.policy_file import read_policy
from hostelry.sim.policy_requests import PolicySet
from hostelry.sim.replay import Progress, ReplaySetup
from hostelry.sim.scenario import DEFAULT_SEED, SCENARIOS, build_scenario
from hostelry.sim.service import (
    Measured,
    ServiceModel,
    default_service,
    fit_service,
    load_service,
    save_service,
)
from hostelry.sim.trace import Trace, open_trace, write_trace

MIB = 2**20
PROGRESS_EVERY_S = 2.0
MAX_ACTS = 40
WORDS = (16, 64, 256, 512)
OUTPUT_TOKENS = 32
REPEATS = 5
BESIDE = (2, 4, 8)
WORDS_BESIDE = 64
READ_TIMEOUT_S = 120.0
Say = Callable[[str], None]


class Against(NamedTuple):
    """The deployment, service model and seed that every policy is replayed on."""

    deployment: SimulatedDeployment
    service: ServiceModel
    seed: int


@contextmanager
def possible() -> Iterator[None]:
    """Convert a ValueError of an option into an error of the command line."""
    try:
        yield
    except ValueError as error:
        raise TerminalError(f"invalid options: {error}") from None


def chosen_seed(seed: int | None) -> int:
    """The given seed, or the default seed."""
    return DEFAULT_SEED if seed is None else seed


def service_model(path: Path | None) -> ServiceModel:
    """The calibration in a file, or the shipped calibration."""
    return default_service() if path is None else load_service(path)


def requirements(cpus: float, memory_mib: int, accelerators: int) -> Requirements:
    """The resources that a copy reserves. Raises ValueError for values out of range."""
    if not (0.0 <= cpus <= 4096.0 and 0 < memory_mib <= 1 << 24 and 0 <= accelerators <= 64):
        raise ValueError(
            f"a copy of {cpus:g} CPUs, {memory_mib} MiB and {accelerators} accelerators; it must "
            "have 0 to 4096 CPUs, 1 MiB to 16 TiB and 0 to 64 accelerators"
        )
    return Requirements(
        min_memory_bytes=memory_mib * MIB, cpus=cpus, accelerators=float(accelerators)
    )


def compare(
    fresh: Callable[[], Trace],
    paths: Sequence[Path] | None,
    against: Against,
    *,
    as_json: bool,
    acts: bool,
) -> None:
    """Replay the trace with each policy, and print the outcomes."""
    if not paths:
        raise TerminalError(
            "no --policy FILE is given: it holds what PutScalingPolicy takes; "
            "examples/policies has some"
        )
    setups = [
        ReplaySetup(
            policies=policies,
            deployment=against.deployment,
            service=against.service,
            seed=against.seed,
        )
        for policies in named_apart([read_policy(it) for it in paths])
    ]
    show([run(fresh, it) for it in setups], against.service, as_json=as_json, acts=acts)


def chosen_trace(
    path: Path | None, scenario: str | None, seed: int, limit: int | None
) -> Callable[[], Trace]:
    """A function that builds the trace for each policy. Raises TerminalError if it cannot."""
    if (path is None) is (scenario is None):
        raise UsageError(
            "give one of --trace FILE and --scenario NAME; --list prints the scenarios"
        )
    if path is not None:
        return lambda: open_trace(path, limit)
    assert scenario is not None, "one of both was given"
    return lambda: build_scenario(scenario, seed)


def write(trace: Trace, path: Path) -> None:
    """Write the trace as CSV, and print its number of rows."""
    typer.echo(f"{write_trace(trace, path):,} rows written to {path}")


def named_apart(policies: Sequence[PolicySet]) -> list[PolicySet]:
    """The policies. Repeated names get a number at their end."""
    found: list[PolicySet] = []
    for policy in policies:
        same = sum(known.name.partition(" #")[0] == policy.name for known in found)
        found.append(replace(policy, name=f"{policy.name} #{same + 1}") if same else policy)
    return found


def run(fresh: Callable[[], Trace], setup: ReplaySetup) -> ReplayOutcome:
    """Run one replay, with its progress on standard error."""
    return replay_trace(fresh(), setup, progress_printer(setup.policies.name))


def progress_printer(name: str, every_s: float = PROGRESS_EVERY_S) -> Progress:
    """A callback that prints the progress of a replay every few seconds."""
    began_s = printed_s = monotonic_s()

    def report(num_requests: int, at_s: float) -> None:
        nonlocal printed_s
        now_s = monotonic_s()
        if now_s - printed_s >= every_s:
            printed_s = now_s
            rate = num_requests / max(now_s - began_s, 1e-9)
            typer.echo(
                f"{name}: {num_requests:,} requests, {at_s / 3600:.1f} h of the trace, "
                f"{rate:,.0f} requests a second",
                err=True,
            )

    return report


def show(
    outcomes: Sequence[ReplayOutcome], service: ServiceModel, *, as_json: bool, acts: bool
) -> None:
    """Print JSON, or the policies side by side."""
    if as_json:
        print_json({"service": service, "outcomes": outcomes})
        return
    first = outcomes[0]
    hours = first.lasts_s / 3600
    typer.echo(
        f"{first.trace}: {first.num_requests:,} requests in {hours:.2f} h; seed {first.seed}"
    )
    typer.echo(f"service times: {service.origin or 'of the given calibration'}")
    typer.echo("\n".join(["", *comparison_lines(outcomes)]))
    if acts:
        typer.echo("\n".join(line for it in outcomes for line in ["", *act_lines(it)]))


def show_scenarios() -> None:
    """Print every scenario with its description."""
    width = max(len(it) for it in SCENARIOS)
    for scenario in SCENARIOS.values():
        typer.echo(f"{scenario.name:{width}}  {scenario.about}")


def write_calibration(aim: str, home: Path | None, path: Path | None) -> None:
    """Measure a running component and write the calibration."""
    endpoint, _, component = aim.partition("/")
    if not endpoint or path is None:
        raise UsageError(
            "--calibrate takes ENDPOINT/COMPONENT (ENDPOINT alone for a model), and --service FILE "
            "says where to write"
        )
    found = calibrate(endpoint, component or None, home, lambda line: typer.echo(line, err=True))
    save_service(found, path)
    typer.echo(f"written to {path}")


def comparison_lines(outcomes: Sequence[ReplayOutcome]) -> list[str]:
    """A table with a row per figure and a column per policy."""
    rows = [("", *(it.policy for it in outcomes))]
    cells = zip(*(_cells(it) for it in outcomes), strict=True)
    rows += [(row[0][0], *(text for _, text in row)) for row in cells]
    return columns(rows)


def _cells(outcome: ReplayOutcome) -> list[tuple[str, str]]:
    """The name and text of every figure."""
    return [
        ("requests", f"{outcome.num_requests:,}"),
        ("failed", f"{outcome.num_failed:,}"),
        ("cold (found no copy)", f"{outcome.num_cold:,}"),
        ("delayed until there was one", f"{outcome.num_delayed:,}"),
        *(_times("latency", outcome.latency_s)),
        *(_times("first token", outcome.first_token_s)),
        ("copy-seconds", f"{outcome.copy_s:,.0f}"),
        ("  of which needed", f"{outcome.needed_copy_s:,.0f}"),
        ("  overshoot", f"{outcome.overshoot_copy_s:,.0f}"),
        ("instance-hours", f"{outcome.instance_h:,.2f}"),
        ("most copies", f"{outcome.peak_copies:,}"),
        ("most instances", f"{outcome.peak_instances:,}"),
        ("acts out / in", f"{outcome.num_out:,} / {outcome.num_in:,}"),
        ("spurious acts", f"{outcome.num_spurious:,} ({outcome.spurious_per_h:.2f} an hour)"),
        ("t0 -> t1, median", _median([_between(it.rose_s, it.decided_s) for it in outcome.acts])),
        (
            "t1 -> t2, median",
            _median([_between(it.decided_s, it.answered_s) for it in outcome.acts]),
        ),
        ("digest", outcome.digest[:12]),
    ]


def _times(name: str, figures: Any) -> list[tuple[str, str]]:
    return [(f"{name} {which}", f"{figures[which]:.3f} s") for which in ("p50", "p90", "p99")]


def _between(from_s: float | None, to_s: float | None) -> float | None:
    return None if from_s is None or to_s is None else to_s - from_s


def _median(spans_s: Sequence[float | None]) -> str:
    known = sorted(it for it in spans_s if it is not None)
    return f"{known[len(known) // 2]:.1f} s" if known else "-"


def act_lines(outcome: ReplayOutcome) -> list[str]:
    """The first acts of one replay."""
    rows: list[tuple[str, ...]] = [("decided", "by", "copies", "t0->t1", "t1->t2", "", "why")]
    rows += [_act_row(it) for it in outcome.acts[:MAX_ACTS]]
    left = len(outcome.acts) - MAX_ACTS
    more = [f"... and {left:,} more; --json has them all"] if left > 0 else []
    return [f"{outcome.policy}:", *columns(rows), *more]


def _act_row(act: SimulatedAct) -> tuple[str, ...]:
    reaction_s, start_s = (
        _between(act.rose_s, act.decided_s),
        _between(act.decided_s, act.answered_s),
    )
    return (
        f"{act.decided_s:.0f} s",
        act.by or "bounds",
        f"{act.from_copies} -> {act.to_copies}",
        "" if reaction_s is None else f"{reaction_s:.1f} s",
        "" if start_s is None else f"{start_s:.1f} s",
        "spurious" if act.is_spurious else "",
        act.reason[:80],
    )


def calibrate(endpoint: str, component: str | None, home: Path | None, say: Say) -> ServiceModel:
    """Measure the service model of a running component, or of the endpoint's model if None.

    The model must stream. Sends about eighty requests, one to eight at a time. Raises TerminalError
    if a request fails, or an answer is not a chat stream of an LMI container.
    """
    config, credentials = load_home(home_at(home))
    runtime = aws_client("sagemaker-runtime", config, credentials, read_timeout_s=READ_TIMEOUT_S)
    chats = ChatClient(runtime, endpoint, component)
    chats.one(WORDS[0], beside=1)  # warm-up, not measured
    found: list[Measured] = []
    for number in range(REPEATS):
        found += [chats.one(words, beside=1) for words in WORDS]
        say(f"one at a time, {number + 1} of {REPEATS}: {found[-1].last_s:.3f} s the longest")
    for beside in BESIDE:
        found += chats.together(beside)
        say(f"{beside} at a time: {found[-1].last_s:.3f} s each")
    day = datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat()
    where = endpoint if component is None else f"{endpoint}/{component}"
    return fit_service(found, f"measured {day} on {where}, {len(found)} requests")


class ChatClient:
    """Client that streams chats. Their prompts share no prefix, so that no prompt is cached."""

    def __init__(self, runtime: Any, endpoint: str, component: str | None) -> None:
        self._runtime = runtime
        self._aim = {"EndpointName": endpoint}
        if component is not None:
            self._aim["InferenceComponentName"] = component
        self._source = random.Random(1)
        self._lock = threading.Lock()

    def one(self, words: int, beside: int) -> Measured:
        """Send one chat and time its tokens."""
        with self._lock:
            text = " ".join(str(self._source.randrange(10, 100)) for _ in range(words))
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began_s = monotonic_s()
        first_s, usage = None, None
        try:
            answer = self._runtime.invoke_endpoint_with_response_stream(
                **self._aim, ContentType="application/json", Body=json.dumps(body)
            )
            for chunk in _chunks(answer["Body"]):
                if first_s is None and chunk.get("choices"):
                    first_s = monotonic_s() - began_s
                usage = chunk.get("usage") or usage
        except (ClientError, BotoCoreError, ValueError) as error:
            raise TerminalError(f"a request to {self._aim} failed: {error}") from None
        if first_s is None or usage is None:
            raise TerminalError("the answer is not a stream of chat completion chunks with usage")
        return Measured(
            input_tokens=usage["prompt_tokens"],
            output_tokens=usage["completion_tokens"],
            first_s=first_s,
            last_s=monotonic_s() - began_s,
            beside=beside,
        )

    def together(self, beside: int) -> list[Measured]:
        """Send several chats at a time, in rounds. The first round is not measured."""
        with ThreadPoolExecutor(beside) as pool:
            rounds = [
                list(pool.map(lambda _: self.one(WORDS_BESIDE, beside), range(beside)))
                for _ in range(REPEATS)
            ]
        return [it for one in rounds[1:] for it in one]


def _chunks(events: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects in a stream of lines, with or without the prefix of server-sent events."""
    pending = b""
    for event in events:
        pending += event["PayloadPart"]["Bytes"]
        *lines, pending = pending.split(b"\n")
        for line in (it.strip().removeprefix(b"data:").strip() for it in lines):
            if line and line != b"[DONE]":
                yield json.loads(line)
