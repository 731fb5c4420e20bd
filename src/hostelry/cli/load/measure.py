"""One load test or one search: it runs until Ctrl-C, and its result has a document and lines."""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from hostelry.base.clock import SystemClock
from hostelry.base.printable import CLEAR_LINE
from hostelry.cli.load.find import (
    FindOptions,
    best_tally,
    check_tokens,
    search_document,
    search_lines,
    show_search_progress,
    show_step,
)
from hostelry.cli.load.result import progress_line, result_lines
from hostelry.loadtest.requests import LoadPlan, LoadRequests
from hostelry.loadtest.runner import LoadRun, LoadSearch
from hostelry.loadtest.search import SearchCause, SearchSettings
from hostelry.loadtest.tally import LoadTally, result_document

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class LoadTest(msgspec.Struct, frozen=True):
    """A test of a model, with the options that its result names."""

    target: str
    options: dict[str, Any]
    plan: LoadPlan
    requests: LoadRequests

    def build_document(self, tally: LoadTally) -> dict[str, Any]:
        """The result as JSON values."""
        return result_document(tally, self.target, self.options, format_now())


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a test as JSON values and as text.

    Args:
        problem: the reason why the command fails. None: it succeeds.
        is_interrupted: true after Ctrl-C.
    """

    document: Mapping[str, Any]
    lines: Sequence[str]
    problem: str | None
    is_interrupted: bool


def measure_load(test: LoadTest) -> LoadResult:
    """Run a load test, with its state shown meanwhile."""
    run = LoadRun(test.plan, test.requests, show_progress)
    tally, is_interrupted = run_until_interrupt(run)
    result = test.build_document(tally)
    problem = None if tally.num_ok else f"none of {tally.num_requests} requests was answered"
    return LoadResult(
        document=result,
        lines=result_lines(result),
        problem=problem,
        is_interrupted=is_interrupted,
    )


def search_load(test: LoadTest, options: FindOptions) -> LoadResult:
    """Search for the highest concurrency that keeps the limits."""
    check_tokens(options, streams_text=test.requests.streams_text)
    settings = SearchSettings(
        limits=options.limits, max_concurrency=test.plan.concurrency, step_s=test.plan.duration_s
    )
    show = partial(partial, show_search_progress)
    search = LoadSearch(test.plan, test.requests, settings, show, show_step)
    (steps, outcome), is_interrupted = run_until_interrupt(search)
    result = test.build_document(best_tally(outcome))
    problem = None
    if outcome.cause is SearchCause.NO_ANSWERS:
        problem = f"{test.target} stopped answering during the search"
    elif outcome.best is None:
        problem = "no concurrency was found at which the limits hold"
    return LoadResult(
        document=search_document(settings, steps, outcome, result),
        lines=search_lines(test.target, settings, steps, outcome),
        problem=problem,
        is_interrupted=is_interrupted,
    )


class Interruptible(Protocol[T_co]):
    """A load test that Ctrl-C ends early."""

    async def measure(self) -> T_co:
        """Run the test, and return its result."""

    def interrupt(self) -> None:
        """End the test early, with the result so far."""


def run_until_interrupt(test: Interruptible[T]) -> tuple[T, bool]:
    """The result of a load test, and true if Ctrl-C ended it early."""
    import uvloop  # completion does not need it

    is_interrupted = False

    def interrupt() -> None:
        nonlocal is_interrupted
        is_interrupted = True
        test.interrupt()

    async def measure() -> T:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, interrupt)
        try:
            return await test.measure()
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    result = uvloop.run(measure())
    clear_progress()
    return result, is_interrupted


def format_now() -> str:
    """The time of a result."""
    return datetime.fromtimestamp(SystemClock().now(), UTC).isoformat(timespec="seconds")


def show_progress(tally: LoadTally, elapsed_s: float, in_flight: int) -> None:
    """Show the state of a running test on a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.write(progress_line(tally, elapsed_s, in_flight))
        sys.stderr.flush()


def clear_progress() -> None:
    """Remove the line with the state of a test from a terminal."""
    if sys.stderr.isatty():
        sys.stderr.write(CLEAR_LINE)
