"""Running requests: their pages, their chunks, and preemption when pages run out.

a running request's pages are full              result
----------------------------------------------  --------------------------------------------
it has all its tokens                           nothing: it is about to be removed
a page is free or can be evicted                it gets that page
loaded adapters are held for waiting requests   these become evictable, tried again
otherwise                                       the newest request of the tenant with the
                                                  most service is preempted, tried again
"""

from collections.abc import Iterator

from hostelry.engine.pages.unified import OutOfPagesError, PagePool
from hostelry.engine.scheduler.decisions import Chunk, SchedulerLimits
from hostelry.engine.scheduler.fair_queue import OUTPUT_CHARGE, FairQueue
from hostelry.engine.scheduler.records import RequestStatus, Sequence, StepDraft
from hostelry.engine.scheduler.residency import Residency


class RunningBatch:
    """Requests that own pages, in order of admission."""

    def __init__(
        self, limits: SchedulerLimits, pool: PagePool, fair_queue: FairQueue, residency: Residency
    ) -> None:
        self._limits = limits
        self._pool = pool
        self._fair_queue = fair_queue
        self._residency = residency
        self._sequences: dict[str, Sequence] = {}

    def __len__(self) -> int:
        return len(self._sequences)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._sequences.values())

    @property
    def reserve(self) -> int:
        """Pages to leave free so that the running requests can grow."""
        return self._limits.reserve_pages * len(self._sequences)

    @property
    def num_growth_pages(self) -> int:
        """Pages that the running requests may still ask for."""
        count_pages = self._limits.count_pages
        num_pages = ((count_pages(it.max_tokens - 1), len(self._pool.pages(it.id))) for it in self)
        return sum(max(0, most - held) for most, held in num_pages)

    def start(self, sequence: Sequence, step: StepDraft, num_reserved: int) -> bool:
        """Give the head of a flow its pages and its first chunk.

        False, changing nothing, if that would leave fewer than `num_reserved` available pages.
        """
        pool, limits = self._pool, self._limits
        adapter = sequence.flow.adapter
        num_pages = limits.count_pages(sequence.num_tokens)
        num_cachable = (sequence.num_tokens - 1) // limits.page_tokens  # the last is computed
        if adapter is not None:
            pool.hold_adapter(adapter.key)
        num_shared = pool.begin(sequence.id, sequence.submission.cached_keys[:num_cachable])
        if num_pages - num_shared + num_reserved > pool.num_available:
            pool.release(sequence.id, step.now)
            if adapter is not None:
                pool.unhold_adapter(adapter.key, step.now)
            return False
        pool.grow(sequence.id, num_pages, step.now)
        self._fair_queue.pop(sequence.flow)
        sequence.status = RequestStatus.RUNNING
        sequence.num_published = num_shared
        sequence.num_computed = num_shared * limits.page_tokens
        sequence.num_charged = max(sequence.num_charged, sequence.num_computed)
        sequence.token_capacity = num_pages * limits.page_tokens
        sequence.starved_since = None
        sequence.flow.num_running += 1
        sequence.flow.tenant.num_running += 1
        self._sequences[sequence.id] = sequence
        if adapter is not None:
            self._residency.start(adapter, step.now)
        self._plan_chunk(sequence, step)
        return True

    def stop(self, sequence: Sequence, now: float, keys: tuple[bytes, ...] = ()) -> None:
        """Remove a request and release its pages, after publishing those that `keys` name."""
        num_complete = min(len(keys), sequence.num_computed // self._limits.page_tokens)
        for index in range(sequence.num_published, num_complete):
            self._pool.publish(sequence.id, index, keys[index])
        del self._sequences[sequence.id]
        self._pool.release(sequence.id, now)
        flow = sequence.flow
        flow.num_running -= 1
        flow.tenant.num_running -= 1
        if flow.adapter is not None:
            self._residency.stop(flow.adapter, now)

    def make_room(self, step: StepDraft) -> None:
        """Give a further page to each request whose pages are full, preempting if needed."""
        full = [it for it in self._sequences.values() if it.num_computed >= it.token_capacity]
        for sequence in full:
            if sequence.status is RequestStatus.RUNNING and not _is_spent(sequence):
                self._grow(sequence, step)

    def plan_chunks(self, step: StepDraft) -> None:
        """Plan the chunks of the running requests: all decodes, then prompts within the budget."""
        chunks = step.chunks
        prompts = []
        for sequence in self._sequences.values():
            computed = sequence.num_computed
            if sequence.num_tokens - computed != 1:
                prompts.append(sequence)
            elif sequence.num_tokens < sequence.max_tokens:
                chunks.append(Chunk(sequence.id, computed, 1, True))
                if computed < sequence.num_prompt:
                    self._charge(sequence, computed + 1)
        step.budget -= len(chunks)
        for sequence in prompts:
            if step.budget < 1:
                break
            self._plan_chunk(sequence, step)

    def commit(self, chunks: tuple[Chunk, ...], by_id: dict[str, Sequence], now: float) -> None:
        """Record that `chunks` were computed. Chunks of removed requests are ignored."""
        for request_id, start, length, samples in chunks:
            sequence = by_id.get(request_id)
            if (
                sequence is None
                or sequence.num_computed != start
                or sequence.token_capacity <= start
            ):
                continue
            sequence.num_computed = start + length
            if sequence.num_published < sequence.num_keys:
                self._publish(sequence)
            if samples:
                sequence.num_tokens += 1
                flow = sequence.flow
                tenant = flow.tenant
                flow.counter += OUTPUT_CHARGE
                tenant.counter += OUTPUT_CHARGE * tenant.token_cost
                if tenant.bucket is not None:
                    tenant.bucket.take(1, now)

    def check_integrity(self) -> None:
        """Raise AssertionError where counts and pages do not agree."""
        assert len(self._sequences) <= self._limits.max_batch_size, "too many run"
        for sequence in self:
            held = len(self._pool.pages(sequence.id))
            assert sequence.status is RequestStatus.RUNNING, f"{sequence.id} is {sequence.status}"
            assert sequence.token_capacity == held * self._limits.page_tokens, (
                f"{sequence.id}: slots"
            )
            assert sequence.num_computed <= sequence.token_capacity, f"{sequence.id} lacks pages"
            assert sequence.num_computed < sequence.num_tokens, f"{sequence.id} has nothing left"
        owned = {page for it in self for page in self._pool.pages(it.id)}
        assert len(owned) == self._pool.stats().num_sequence_pages, "pages of a forgotten request"

    def _grow(self, sequence: Sequence, step: StepDraft) -> None:
        num_pages = sequence.token_capacity // self._limits.page_tokens + 1
        while True:
            try:
                self._pool.grow(sequence.id, num_pages, step.now)
            except OutOfPagesError:
                if self._residency.break_promises(step.now):
                    continue
                victim = max(self, key=lambda it: (it.flow.tenant.counter, it.number))
                self._preempt(victim, step)
                if victim is sequence:
                    return
            else:
                sequence.token_capacity += self._limits.page_tokens
                return

    def _preempt(self, sequence: Sequence, step: StepDraft) -> None:
        """Send a request back to the head of its flow.

        It keeps its tokens, not its pages. It is not charged again for tokens that are computed
        again, so that others become the next to be preempted: of any set of requests, one always
        makes progress.
        """
        self.stop(sequence, step.now)
        sequence.status = RequestStatus.WAITING
        sequence.num_computed = sequence.token_capacity = sequence.num_published = 0
        sequence.failed_num_pages = -1
        flow = sequence.flow
        self._fair_queue.push_front(sequence)
        if flow.num_waiting == 1:
            self._residency.enter(flow, sequence.submission)
        step.preempted.append(sequence.id)

    def _plan_chunk(self, sequence: Sequence, step: StepDraft) -> None:
        left = sequence.num_tokens - sequence.num_computed
        length = min(left, step.budget)
        if sequence.submission.is_scored:
            length = min(length, step.scored_budget)
            step.scored_budget -= length
            if not length:
                return
        step.budget -= length
        start = sequence.num_computed
        step.chunks.append(Chunk(sequence.id, start, length, length == left))
        self._charge(sequence, start + length)

    def _charge(self, sequence: Sequence, end: int) -> None:
        """Charge the prompt tokens before `end` that have not been charged."""
        num_new = min(end, sequence.num_prompt) - sequence.num_charged
        if num_new > 0:
            sequence.num_charged += num_new
            self._fair_queue.charge(sequence.flow, num_new)

    def _publish(self, sequence: Sequence) -> None:
        keys = sequence.submission.prefix_keys
        num_complete = min(len(keys), sequence.num_computed // self._limits.page_tokens)
        for index in range(sequence.num_published, num_complete):
            self._pool.publish(sequence.id, index, keys[index])
        sequence.num_published = max(sequence.num_published, num_complete)


def _is_spent(sequence: Sequence) -> bool:
    """Whether it has all its tokens and is about to be removed."""
    return sequence.num_tokens >= sequence.max_tokens
