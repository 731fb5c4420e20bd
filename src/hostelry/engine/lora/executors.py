"""Executors of work that would block a step: reading, fetching and copying adapters."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

Job = Callable[[], None]
"""Work that reports its own errors and raises none."""


class JobExecutor(Protocol):
    """Runs jobs in other threads, in the order they were submitted."""

    def submit(self, job: Job) -> None:
        """Run `job` as soon as a thread is free."""
        ...

    def add_thread(self) -> None:
        """Add a thread, in case one is stuck for good."""
        ...

    def close(self) -> None:
        """End once the started jobs are done. Does not wait for them."""
        ...


class ThreadJobExecutor:
    """A JobExecutor with `num_threads` daemon threads, started with the first job."""

    def __init__(self, name: str, num_threads: int) -> None:
        self._name = name
        self._num_threads = num_threads
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def submit(self, job: Job) -> None:
        """Run `job` as soon as a thread is free."""
        while len(self._threads) < self._num_threads:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put(job)

    def add_thread(self) -> None:
        """Add a thread, in case one is stuck for good."""
        self._num_threads += 1

    def close(self) -> None:
        """End once the started jobs are done. Does not wait for them."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
