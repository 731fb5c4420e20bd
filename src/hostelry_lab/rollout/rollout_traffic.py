"""Requests without retries from several threads, each with the version that answered it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from hostelry.base.clock import monotonic_s
from hostelry_lab.call import OK
from hostelry_lab.load import outcome_of
from hostelry_lab.rollout.deployment import BODY, RolloutDeployment
from hostelry_lab.rollout.rollout_ledger import RolloutCall
from hostelry_lab.threads import running_threads

PAUSE_S = 0.02


class RolloutTraffic:
    """Endless requests. `calls` are the calls that have ended, on the clock of `monotonic_s`."""

    def __init__(self, deployment: RolloutDeployment, num_threads: int) -> None:
        self._deployment = deployment
        self._num_threads = num_threads
        self._stopping = threading.Event()
        self._calls: list[RolloutCall] = []

    @contextmanager
    def flowing(self) -> Iterator["RolloutTraffic"]:
        """Send requests while the block runs."""
        with running_threads(self._stopping, *[self._run] * self._num_threads):
            yield self

    def calls(self, since: float) -> list[RolloutCall]:
        """The calls that ended after the instant `since`, in seconds after it."""
        return [
            RolloutCall(
                began_s=call.began_s - since,
                ended_s=call.ended_s - since,
                version=call.version,
                error=call.error,
            )
            for call in tuple(self._calls)
            if call.ended_s >= since
        ]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._calls.append(self._call())
            self._stopping.wait(PAUSE_S)

    def _call(self) -> RolloutCall:
        began_at, version = monotonic_s(), None

        def call() -> None:
            nonlocal version
            answer = self._deployment.runtime.invoke_endpoint(
                EndpointName=self._deployment.name, ContentType="application/json", Body=BODY
            )
            version = str(json.loads(answer["Body"].read())["answer"])

        outcome = outcome_of(call)
        error = None if outcome == OK else outcome
        return RolloutCall(began_s=began_at, ended_s=monotonic_s(), version=version, error=error)
