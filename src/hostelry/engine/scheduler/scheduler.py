"""Continuous batching with chunked prefill, over integers.

Each step mixes prefill and decode. Requests are served in order of arrival: the oldest running
request can always go on, because the newest is sent back to wait (and recomputed later) when pages
run out; a waiting request is never overtaken. The scheduler owns the page tables and knows nothing
of token values, tensors, time or adapters' weights.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from hostelry.engine.pages.pool import PagePool
from hostelry.engine.scheduler.plan import Chunk, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Budgets of one step; raises ValueError where they cannot work together.

    `max_adapters` bounds the distinct adapters among running requests; None is no bound.
    """

    max_batch_size: int
    max_batched_tokens: int
    page_tokens: int
    max_adapters: int | None = None

    def __post_init__(self) -> None:
        """Check every bound."""
        for name in ("max_batch_size", "max_batched_tokens", "page_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_adapters is not None and self.max_adapters < 1:
            raise ValueError(f"max_adapters is {self.max_adapters}; it must be at least 1")
        if self.max_batched_tokens < self.max_batch_size:
            raise ValueError(
                f"max_batched_tokens is {self.max_batched_tokens}; it must be at least "
                f"max_batch_size, {self.max_batch_size}, so that every running request can decode"
            )


@dataclass(slots=True)
class _Sequence:
    """A request as the scheduler sees it: counts."""

    id: str
    adapter: str | None
    num_tokens: int  # prompt and output so far
    num_computed: int = 0  # tokens whose keys and values are in pages

    @property
    def num_left(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def is_decoding(self) -> bool:
        return self.num_left == 1 and self.num_computed > 0


@dataclass(slots=True)
class _Step:
    """Budgets and decisions of the step being planned."""

    prefill_tokens: int  # rows left for chunks of more than one token
    chunks: list[Chunk]
    new_pages: list[int]
    preempted: list[str]


class Scheduler:
    """Plans steps; `plan`, run, then `commit` with the same plan."""

    def __init__(self, limits: Limits, pool: PagePool) -> None:
        self.limits = limits
        self.pool = pool
        self._waiting: deque[_Sequence] = deque()
        self._running: list[_Sequence] = []  # in order of arrival
        self._by_id: dict[str, _Sequence] = {}

    def add(self, request_id: str, num_tokens: int, adapter: str | None = None) -> None:
        """Queue a request with `num_tokens` of prompt.

        Raises ValueError for a known id, an empty prompt, or one the whole pool cannot hold.
        """
        if request_id in self._by_id:
            raise ValueError(f"request {request_id} is already queued")
        if num_tokens < 1:
            raise ValueError(f"request {request_id} has no tokens")
        if self.pages_for(num_tokens) > self.pool.num_pages:
            raise ValueError(
                f"request {request_id} needs {self.pages_for(num_tokens)} pages; "
                f"the pool has {self.pool.num_pages}"
            )
        sequence = _Sequence(request_id, adapter, num_tokens)
        self._by_id[request_id] = sequence
        self._waiting.append(sequence)

    def remove(self, request_id: str) -> None:
        """Forget a finished or aborted request and free its pages; no error if it is unknown."""
        sequence = self._by_id.pop(request_id, None)
        if sequence is None:
            return
        self.pool.release(request_id)
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def pages_for(self, num_tokens: int) -> int:
        """Pages that `num_tokens` tokens fill."""
        return -(-num_tokens // self.limits.page_tokens)

    @property
    def num_waiting(self) -> int:
        """Requests not admitted, or sent back."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests that own pages."""
        return len(self._running)

    def pages(self, request_id: str) -> Sequence[int]:
        """The request's page table."""
        return self.pool.pages(request_id)

    def plan(self) -> Plan:
        """The next step; changes page tables and the queues, but computes nothing yet."""
        decoding = sum(sequence.is_decoding for sequence in self._running)
        step = _Step(self.limits.max_batched_tokens - decoding, [], [], [])
        for sequence in list(self._running):
            if sequence in self._running:  # not preempted by an older one
                self._continue(sequence, step)
        if not step.preempted:  # else the pages just freed would be taken and fought over again
            self._admit(step)
        return Plan(
            chunks=tuple(step.chunks),
            new_pages=tuple(step.new_pages),
            preempted=tuple(step.preempted),
        )

    def commit(self, plan: Plan, *, sampled: bool = True) -> None:
        """Record that `plan` was computed; each sampling chunk's request grew by one token."""
        for chunk in plan.chunks:
            sequence = self._by_id.get(chunk.request_id)
            if sequence is None:  # removed while the step ran
                continue
            sequence.num_computed = chunk.start + chunk.length
            if chunk.samples and sampled:
                sequence.num_tokens += 1

    def check_integrity(self) -> None:
        """Raise AssertionError where queues, counts and pages do not agree."""
        self.pool.check_integrity()
        assert len(self._by_id) == len(self._waiting) + len(self._running)
        assert len(self._running) <= self.limits.max_batch_size
        for sequence in self._waiting:
            assert not self.pool.pages(sequence.id), f"{sequence.id} waits and owns pages"
            assert sequence.num_computed == 0, f"{sequence.id} waits with computed tokens"
        for sequence in self._running:
            held = len(self.pool.pages(sequence.id))
            assert held >= self.pages_for(sequence.num_computed), f"{sequence.id} lacks pages"
            assert sequence.num_computed < sequence.num_tokens, f"{sequence.id} has nothing left"
        owned = sum(len(self.pool.pages(sequence.id)) for sequence in self._running)
        assert owned + self.pool.num_free == self.pool.num_pages, "pages of a forgotten request"

    def _continue(self, sequence: _Sequence, step: _Step) -> None:
        """Plan the next chunk of a running request, preempting newer ones for its pages."""
        length = 1 if sequence.is_decoding else min(sequence.num_left, step.prefill_tokens)
        if length == 0:
            return
        if not self._make_room(sequence, sequence.num_computed + length, step):
            return
        if not sequence.is_decoding:
            step.prefill_tokens -= length
        self._put(sequence, length, step)

    def _make_room(self, sequence: _Sequence, num_tokens: int, step: _Step) -> bool:
        """Grow the request's table to `num_tokens`; False when it was preempted itself."""
        wanted = self.pages_for(num_tokens)
        while wanted - len(self.pool.pages(sequence.id)) > self.pool.num_free:
            victim = self._running[-1]
            self._preempt(victim, step)
            if victim is sequence:
                return False
        step.new_pages += self.pool.grow(sequence.id, wanted)
        return True

    def _preempt(self, sequence: _Sequence, step: _Step) -> None:
        """Send the newest running request back to the head of the queue, to be recomputed."""
        self._running.pop()
        self.pool.release(sequence.id)
        sequence.num_computed = 0
        self._waiting.appendleft(sequence)
        step.preempted.append(sequence.id)

    def _admit(self, step: _Step) -> None:
        """Start waiting requests, first come first served, as far as the budgets go."""
        while self._waiting and step.prefill_tokens > 0 and self._fits(self._waiting[0]):
            sequence = self._waiting.popleft()
            self._running.append(sequence)
            step.new_pages += self.pool.grow(sequence.id, self.pages_for(sequence.num_tokens))
            length = min(sequence.num_left, step.prefill_tokens)
            step.prefill_tokens -= length
            self._put(sequence, length, step)

    def _fits(self, sequence: _Sequence) -> bool:
        """Whether the request may start now.

        One free page is left for each running request, so that admitting one does not preempt
        another at the next page boundary.
        """
        if len(self._running) >= self.limits.max_batch_size:
            return False
        if not self._adapter_fits(sequence):
            return False
        reserve = len(self._running)
        return self.pages_for(sequence.num_tokens) + reserve <= self.pool.num_free

    def _adapter_fits(self, sequence: _Sequence) -> bool:
        if self.limits.max_adapters is None or sequence.adapter is None:
            return True
        running = {other.adapter for other in self._running} - {None}
        return len(running | {sequence.adapter}) <= self.limits.max_adapters

    def _put(self, sequence: _Sequence, length: int, step: _Step) -> None:
        step.chunks.append(
            Chunk(
                request_id=sequence.id,
                start=sequence.num_computed,
                length=length,
                samples=length == sequence.num_left,
            )
        )
