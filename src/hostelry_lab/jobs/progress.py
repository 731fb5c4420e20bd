"""Progress of the drill's work, read from the jobs process and from control while they answer."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from hostelry.base.clock import monotonic_s
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.json import decode
from hostelry_lab.observer import PlatformObserver
from hostelry_lab.threads import running_threads

LOOK_S = 0.5
CALL_S = 5.0
OVER = ("Completed", "Failed", "Stopped")


class JobsProgress:
    """Watches the endpoint and the transform job `name`. The latest observation is kept.

    Args:
        platform: the observed platform.
        name: of the endpoint and the job.
        num_requests: number of requests to submit.
        acknowledged: returns the number of acknowledged requests.
    """

    def __init__(
        self,
        platform: PlatformObserver,
        name: str,
        num_requests: int,
        acknowledged: Callable[[], int],
    ) -> None:
        self._platform = platform
        self._name = name
        self._num_requests = num_requests
        self._acknowledged = acknowledged
        self._stopping = threading.Event()
        self._http = httpx.Client(
            headers={INTERNAL_KEY_HEADER: platform.credentials.internal_key},
            timeout=CALL_S,
            trust_env=False,
            verify=False,  # plain HTTP on loopback
        )
        self.ended = 0  # requests
        self.requests_over_at: float | None = None
        self.job: dict[str, Any] | None = None
        self.job_over_at: float | None = None
        self.copies: list[dict[str, Any]] = []  # of the endpoint and of the job
        self.changed_at = monotonic_s()

    @property
    def share(self) -> float:
        """The share of the work that is done, in which requests and files count alike."""
        done = 0.0
        if self.job is not None:
            progress = self.job["progress"]
            total = progress["objects_total"]
            is_over = self.job["status"] in OVER
            done = 1.0 if is_over else progress["objects"] / total if total else 0.0
        return (self.ended / self._num_requests + done) / 2

    @property
    def is_over(self) -> bool:
        """Whether every request and the job have ended."""
        return self.ended == self._num_requests and self.job_over_at is not None

    @contextmanager
    def watching(self) -> Iterator["JobsProgress"]:
        """Watch while the block runs."""
        with self._http, running_threads(self._stopping, self._run):
            yield self

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            before = (self.ended, self.job)
            self._look_at_queue()
            self._look_at_state()
            if before != (self.ended, self.job):
                self.changed_at = monotonic_s()

    def _look_at_queue(self) -> None:
        acknowledged = self._acknowledged()  # first, so that later ones do not count
        shown = self._asked(f"{self._platform.config.jobs_url}/internal/jobs?limit=1")
        if shown is None:
            return
        mine = (it for it in shown["backlog"] if it["endpoint_name"] == self._name)
        unfinished = sum(it["waiting"] + it["running"] for it in mine)
        self.ended = max(self.ended, acknowledged - unfinished)
        if self.ended == self._num_requests and self.requests_over_at is None:
            self.requests_over_at = monotonic_s()

    def _look_at_state(self) -> None:
        state = self._asked(f"{self._platform.config.control_url}/internal/state")
        if state is None:
            return
        jobs = (it for it in state["transform_jobs"] if it["name"] == self._name)
        self.job = next(jobs, self.job)
        if self.job is not None and self.job["status"] in OVER and self.job_over_at is None:
            self.job_over_at = monotonic_s()
        hidden = None if self.job is None else self.job["endpoint"]
        shown = [it for it in state["endpoints"] if it["name"] == self._name]
        shown += [] if hidden is None else [hidden]
        self.copies = [copy for endpoint in shown for copy in endpoint["copies"]]

    def _asked(self, url: str) -> dict[str, Any] | None:
        try:
            answer = self._http.get(url)
            answer.raise_for_status()
        except httpx.HTTPError:
            return None
        return decode(answer.content, dict[str, Any])
