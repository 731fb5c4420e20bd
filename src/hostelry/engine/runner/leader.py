"""Rank 0 of several processes that hold one model: it starts, leads and ends the others."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import torch
from torch import distributed

from hostelry.base.system import readable
from hostelry.engine.kernels.batch import AdapterIndex, ForwardBatch
from hostelry.engine.kernels.decoder import LogitsDecoder
from hostelry.engine.kernels.pool import PoolTensor
from hostelry.engine.lora.image import HostAdapter
from hostelry.engine.lora.share import AdapterShare, SharedReader, SharePlan, plan_share
from hostelry.engine.runner.follower import FollowerJob, RankDeps, load_part, start_followers
from hostelry.engine.runner.parallel import (
    LeadingDecoder,
    ParallelError,
    RankConnections,
    find_failed_ranks,
    join,
    leave,
)

_END_S = 30.0  # how long followers may take to end before they are killed
_EXIT_S = 1.0  # how long a process that closed its connections takes to be seen as ended
_MAX_PLANS = 256


class Followers:
    """The processes of all ranks but 0."""

    def __init__(self, job: FollowerJob, devices: Sequence[str]) -> None:
        self._processes = start_followers(job, devices)

    def wait_ready(self) -> None:
        """Wait until all are about to join. Raises ParallelError if one has ended."""
        for process in self._processes:
            assert process.stdout is not None, "start_followers makes pipes"
            if not process.stdout.readline():
                raise ParallelError(self.find_ended(_EXIT_S) or "a rank closed its output")

    def find_ended(self, wait_s: float = 0.0) -> str | None:
        """Describe a process that has ended.

        None if all still run after `wait_s`. If several ended, a process ended by a signal comes
        first: the others may have ended because of it.
        """
        if wait_s and all(process.poll() is None for process in self._processes):
            with suppress(subprocess.TimeoutExpired):
                self._processes[0].wait(wait_s)
        statuses = [(process.poll(), rank) for rank, process in enumerate(self._processes, start=1)]
        ended = [(status, rank) for status, rank in statuses if status is not None]
        if not ended:
            return None
        status, rank = min(ended)
        return f"rank {rank} {_describe_exit(status)}"

    def await_end(self) -> None:
        """Block until one has ended."""
        descriptors = []
        for process in self._processes:
            try:
                descriptors.append(os.pidfd_open(process.pid))
            except ProcessLookupError:
                return
        readable(*descriptors, within_s=None)
        for descriptor in descriptors:
            os.close(descriptor)

    def close(self, timeout_s: float) -> None:
        """Wait until all have ended. Kills those that take longer than `timeout_s`."""
        for process in self._processes:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class Leader(LogitsDecoder):
    """The Decoder of rank 0, and the Placer that puts adapters on every rank.

    Steps belong to one thread, placements to another. After the first failure of a step or a
    process the ranks no longer agree: `failure` has the reason, and no step is computed.
    """

    def __init__(
        self, part: RankDeps, ranks: RankConnections, followers: Followers, folder: Path
    ) -> None:
        """`folder` is for adapters on their way to other ranks. `close` deletes it."""
        self.pool = part.pool
        self._targets = part.targets
        self._shard = ranks.collective.shard
        self.reader = SharedReader(
            part.reader, part.targets, self._shard.world_size, part.pool.layout.page_elements
        )
        self._leading = LeadingDecoder(part.decoder, ranks.channel, ranks.placements)
        self._followers = followers
        self._folder = folder
        self._plans: dict[object, SharePlan] = {}
        self._indexes: dict[str, AdapterIndex] = {}
        self._placing = threading.Lock()
        self._failure: str | None = None
        self._is_closed = False

    @property
    def failure(self) -> str | None:
        """Why no more steps can be computed. None while they can."""
        if self._failure is None and not self._is_closed:
            self._fail(self._followers.find_ended())
        return self._failure

    def watch(self, on_failure: Callable[[str], None]) -> None:
        """Have a thread call `on_failure` with the reason once another rank has ended.

        Not called after `close`. A step of this rank may still wait for the other rank then.
        """

        def wait() -> None:
            self._followers.await_end()
            if self.failure is not None:
                on_failure(self.failure)

        threading.Thread(target=wait, name="watch-ranks", daemon=True).start()

    def forward(self, batch: ForwardBatch, pool: PoolTensor) -> torch.Tensor:
        """Logits (S, V) fp32. Raises ParallelError naming the rank that failed."""
        if self.failure is not None:
            raise ParallelError(self.failure)
        try:
            return self._leading.forward(batch, pool)
        except Exception as error:
            reason = self._followers.find_ended(_EXIT_S) or f"a rank failed: {error}"
            self._fail(reason)
            raise ParallelError(self._failure) from error

    def index(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> AdapterIndex:
        """The positions of rank 0's part of the adapter once it is in those pages."""
        index = self._build_share(adapter).index(page_numbers)
        self._indexes[adapter.content_id] = index
        return index

    def begin(self, adapter: HostAdapter, page_numbers: Sequence[int]) -> Callable[[], None]:
        """The work that puts every rank's part into the pages, for another thread.

        Call `index` first.
        """
        index, pages = self._indexes[adapter.content_id], list(page_numbers)
        return lambda: self._place(adapter, index, pages)

    def forget(self, content_id: str) -> None:
        """Forget the adapter, whose pages are released."""
        self._leading.remove(self._indexes.pop(content_id))

    def close(self) -> None:
        """End the other ranks."""
        if self._is_closed:
            return
        self._is_closed = True
        is_idle = self._placing.acquire(timeout=_END_S)
        if is_idle and self._failure is None:
            with suppress(RuntimeError):
                self._leading.stop()
        self._followers.close(_END_S if is_idle and self._failure is None else 0.0)
        if is_idle or self._placing.acquire(timeout=_END_S):  # else a thread uses what leave ends
            leave()
            self._placing.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _place(self, adapter: HostAdapter, index: AdapterIndex, pages: list[int]) -> None:
        with self._placing, tempfile.TemporaryDirectory(dir=self._folder) as name:
            if self._is_closed or self._failure is not None:
                raise ParallelError(self._failure or "the engine is closed")
            self.reader.save(adapter, Path(name))
            try:
                self._leading.place(adapter.content_id, index, pages, name)
            except RuntimeError as error:
                self._fail(self._followers.find_ended(_EXIT_S) or f"a rank failed: {error}")
                raise ParallelError(self._failure) from error
            self._build_share(adapter).write(self.pool, pages)

    def _build_share(self, adapter: HostAdapter) -> AdapterShare:
        ranks = adapter.layout.ranks
        plan = self._plans.get(ranks)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            size = self.pool.layout.page_elements
            plan = self._plans[ranks] = plan_share(self._targets, ranks, self._shard, size)
        return AdapterShare(adapter, self._targets, plan)

    def _fail(self, reason: str | None) -> None:
        if reason is not None and self._failure is None:
            self._failure = f"{reason}; the engine must be loaded again"


def start_leader(job: FollowerJob, devices: Sequence[str]) -> Leader:
    """Start the other ranks, load this rank's part of the model, and wait for the others.

    `job` needs no `init_method`. Rank r is on `devices[r]`. Raises ParallelError if another rank
    failed, UnsupportedModelError for the model, and ValueError if this process leads ranks already.
    """
    if distributed.is_initialized():
        raise ValueError(
            "this process has a torch.distributed group already, of another engine perhaps; "
            "close that one, or load this model in a process of its own"
        )
    folder = Path(tempfile.mkdtemp(prefix="hostelry-ranks-")).absolute()
    job = msgspec.structs.replace(job, init_method=f"file://{folder}/store")
    followers = Followers(job, devices)
    try:
        return _lead(job, devices[0], followers, folder)
    except BaseException:
        followers.close(0.0)
        if distributed.is_initialized():
            leave()
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _lead(job: FollowerJob, device: str, followers: Followers, folder: Path) -> Leader:
    followers.wait_ready()
    ranks = join(
        job.init_method,
        0,
        job.world_size,
        device=torch.device(device),
        step_timeout_s=job.step_timeout_s,
    )
    part = load_part(msgspec.structs.replace(job, device=device), ranks.collective)
    try:
        failed = find_failed_ranks(ranks.channel)
    except RuntimeError as error:
        raise ParallelError(followers.find_ended(_EXIT_S) or str(error)) from error
    if failed:
        raise ParallelError(f"the model could not be loaded: {failed}")
    return Leader(part, ranks, followers, folder)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    return f"was ended by {signal.Signals(-status).name}"
