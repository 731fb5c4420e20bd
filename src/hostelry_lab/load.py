"""Load: signed invocations without retries from several threads, each of them recorded."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry_lab.call import OK, LoadCall
from hostelry_lab.threads import running_threads

POLL_S = 0.02
FIRST_ANSWERS_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """An invocation: a component of an endpoint, or a model endpoint, and the request body."""

    endpoint: str
    component: str | None
    content_type: str
    body: bytes

    def __str__(self) -> str:
        """Endpoint and component."""
        return self.endpoint if self.component is None else f"{self.endpoint}/{self.component}"


def outcome_of(call: Callable[[], object]) -> str:
    """OK, or the code or class of the error that `call` raised."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    except BotoCoreError as error:
        return type(error).__name__
    return OK


class Load:
    """Endless invocations by `num_threads` threads, each with one invocation at a time.

    A thread waits for `pause_s` between two invocations.
    """

    def __init__(
        self, runtime: Any, load_target: LoadTarget, num_threads: int, pause_s: float = 0.0
    ) -> None:
        self._runtime = runtime
        self._load_target = load_target
        self._num_threads = num_threads
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._calls: list[LoadCall] = []
        self._num_answers = [0] * num_threads  # each thread counts its own

    @property
    def calls(self) -> list[LoadCall]:
        """Every call that has ended."""
        return list(self._calls)

    def once(self) -> str:
        """Invoke once. Returns OK, or the code or class of the error."""
        named = (
            {}
            if self._load_target.component is None
            else {"InferenceComponentName": self._load_target.component}
        )

        def call() -> None:
            answer = self._runtime.invoke_endpoint(
                EndpointName=self._load_target.endpoint,
                ContentType=self._load_target.content_type,
                Body=self._load_target.body,
                **named,
            )
            answer["Body"].read()

        return outcome_of(call)

    @contextmanager
    def flowing(self) -> Iterator["Load"]:
        """Run the load for the block, which begins once every thread had an answer.

        Raises TerminalError if the first answers do not come.
        """
        callers = (partial(self._run, number) for number in range(self._num_threads))
        with running_threads(self._stopping, *callers):
            self.answers(self._num_threads, FIRST_ANSWERS_S)
            yield self

    def answers(self, more: int, within_s: float) -> None:
        """Wait for `more` further answers. Raises TerminalError if they do not come."""
        goal, deadline = sum(self._num_answers) + more, monotonic_s() + within_s
        while sum(self._num_answers) < goal:
            if monotonic_s() >= deadline:
                last = self._calls[-1].outcome if self._calls else "none has ended"
                raise TerminalError(
                    f"{self._load_target} did not answer {more} calls within {within_s:g} s; the "
                    f"last call: {last}"
                )
            self._stopping.wait(POLL_S)

    def _run(self, number: int) -> None:
        while not self._stopping.is_set():
            began_at = monotonic_s()
            outcome = self.once()
            self._calls.append(LoadCall(began_at=began_at, ended_at=monotonic_s(), outcome=outcome))
            if outcome == OK:
                self._num_answers[number] += 1
                self._stopping.wait(self._pause_s)
            else:
                self._stopping.wait(POLL_S)  # a refused connection takes no time
