"""Submits the drill's requests, each until it is acknowledged, while processes are killed.

A try that is not acknowledged may have been kept all the same. So each try has a unique
InferenceId, NAME-TRY: every kept try is found under its own name, and is not mistaken for a double
of another.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.clock import monotonic_s
from hostelry_lab.jobs.deployment import REQUESTS, JobsDeployment
from hostelry_lab.jobs.plan import PlannedRequest
from hostelry_lab.threads import running_threads

PAUSE_S = 0.2  # before another try
GIVEN_UP_S = 180.0  # for one request


@dataclass(frozen=True, slots=True)
class SubmissionTry:
    """One try at submitting a request."""

    request: PlannedRequest
    inference_id: str
    acknowledged: bool


class DrillSubmissions:
    """Submits `requests` from threads while `has_room`, which bounds the unanswered ones."""

    def __init__(
        self,
        deployment: JobsDeployment,
        requests: Sequence[PlannedRequest],
        has_room: Callable[[int], bool],
        pause_s: float = PAUSE_S,
    ) -> None:
        self._deployment = deployment
        self._waiting = iter(requests)
        self._num_requests = len(requests)
        self._has_room = has_room
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self.tries: list[SubmissionTry] = []
        self.refusals: Counter[str] = Counter()
        self.num_acknowledged = 0
        self.num_given_up = 0

    @property
    def is_over(self) -> bool:
        """Whether every request is acknowledged or given up."""
        return self.num_acknowledged + self.num_given_up == self._num_requests

    @contextmanager
    def running(self, num_threads: int) -> Iterator["DrillSubmissions"]:
        """Submit while the block runs."""
        with running_threads(self._stopping, *([self._run] * num_threads)):
            yield self

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._has_room(self.num_acknowledged):
                self._stopping.wait(self._pause_s)
                continue
            with self._lock:
                request = next(self._waiting, None)
            if request is None:
                return
            self._submit(request)

    def _submit(self, request: PlannedRequest) -> None:
        deadline, number = monotonic_s() + GIVEN_UP_S, 0
        has_input = not request.by_location
        while not self._stopping.is_set() and monotonic_s() < deadline:
            has_input = has_input or self._put(request)
            if has_input:
                number += 1
                if self._try(request, f"{request.name}-{number}"):
                    return
            self._stopping.wait(self._pause_s)
        with self._lock:
            self.num_given_up += 1

    def _put(self, request: PlannedRequest) -> bool:
        try:
            self._deployment.s3.put_object(
                Bucket=self._deployment.name, Key=REQUESTS + request.name, Body=request.body
            )
        except (ClientError, BotoCoreError):
            return False
        return True

    def _try(self, request: PlannedRequest, inference_id: str) -> bool:
        deployment = self._deployment
        given = (
            {"InputLocation": f"s3://{deployment.name}/{REQUESTS}{request.name}"}
            if request.by_location
            else {"Body": request.body}
        )
        refusal = None
        try:
            deployment.runtime.invoke_endpoint_async(
                EndpointName=deployment.name,
                ContentType="application/json",
                InferenceId=inference_id,
                **given,
            )
        except ClientError as error:
            refusal = str(error.response["Error"]["Code"])
        except BotoCoreError as error:
            refusal = type(error).__name__
        with self._lock:
            self.tries.append(SubmissionTry(request, inference_id, refusal is None))
            if refusal is None:
                self.num_acknowledged += 1
            else:
                self.refusals[refusal] += 1
        return refusal is None
