"""Deadlines of waiting requests, and early abort of those that will miss them.

    condition                                             result
    ----------------------------------------------------  --------------------------------------
    it has its first token                                no deadline any more
    its deadline has passed                               dropped
    it waits, and now + predicted wait > deadline         dropped, at its arrival or once its
                                                            deadline is the next one
    no admission rate measured yet, or it is preempted    not predicted
      after a first token

    predicted wait = ahead * (sum of weights of waiting tenants / its weight) / admissions per s

`ahead` counts its tenant's requests before it, so that the next request never has a predicted wait.
The rate is measured while requests wait.

Source: early abort of S-LoRA (arXiv:2311.03285, section on admission control), whose moving average
is used. The share of the tenant, and measuring under load only, are our own.
"""

import heapq

from hostelry.engine.scheduler.records import RequestStatus, Sequence

_WINDOW_S = 1.0
_NEW_SHARE = 0.7  # of the newest window in the moving average, as in S-LoRA
_SLACK = 64


class AdmissionRate:
    """Requests admitted per second while requests were left waiting."""

    def __init__(self) -> None:
        self.per_s: float | None = None
        self._elapsed_s = 0.0
        self._num_admitted = 0
        self._seen_at = 0.0
        self._was_backlogged = False

    def observe(self, now: float, num_admitted: int, is_backlogged: bool) -> None:
        """Record that a step admitted `num_admitted`, and left some waiting if `is_backlogged`."""
        if self._was_backlogged:
            self._elapsed_s += now - self._seen_at
            self._num_admitted += num_admitted
        self._seen_at = now
        self._was_backlogged = is_backlogged
        if self._elapsed_s < _WINDOW_S or not self._num_admitted:
            return
        per_s = self._num_admitted / self._elapsed_s
        old = per_s if self.per_s is None else self.per_s
        self.per_s = _NEW_SHARE * per_s + (1 - _NEW_SHARE) * old
        self._elapsed_s, self._num_admitted = 0.0, 0


class Deadlines:
    """The deadlines of requests without a first token, earliest first."""

    def __init__(self) -> None:
        self.rate = AdmissionRate()
        self._heap: list[tuple[float, int, Sequence]] = []
        self._new: list[Sequence] = []
        self._compact_at = _SLACK

    def add(self, sequence: Sequence) -> None:
        """Track a new request, if it has a deadline."""
        if sequence.submission.deadline_at is None:
            return
        if len(self._heap) >= self._compact_at:
            self._heap = [entry for entry in self._heap if _is_open(entry[2])]
            heapq.heapify(self._heap)
            self._compact_at = 2 * len(self._heap) + _SLACK
        entry = (sequence.submission.deadline_at, sequence.number, sequence)
        heapq.heappush(self._heap, entry)
        self._new.append(sequence)

    def take_expired(self, now: float, waiting_weight: float) -> list[Sequence]:
        """Return the requests that are late, or will be, and stop tracking them."""
        if not self._heap:
            return []
        late = [it for it in self._new if self._will_be_late(it, now, waiting_weight)]
        self._new.clear()
        while self._heap:
            deadline_at, _, sequence = self._heap[0]
            is_late = deadline_at <= now or self._will_be_late(sequence, now, waiting_weight)
            if _is_open(sequence) and not is_late:
                break
            heapq.heappop(self._heap)
            if _is_open(sequence) and sequence not in late:
                late.append(sequence)
        return late

    def _will_be_late(self, sequence: Sequence, now: float, waiting_weight: float) -> bool:
        rate, deadline_at = self.rate.per_s, sequence.submission.deadline_at
        if rate is None or deadline_at is None or sequence.status is not RequestStatus.WAITING:
            return False
        if sequence.num_tokens > sequence.submission.num_prompt_tokens:
            return False
        tenant = sequence.flow.tenant
        ahead = sequence.num_ahead - (tenant.num_departed - sequence.num_departed_before)
        wait_s = max(0, ahead) * waiting_weight / tenant.policy.weight / rate
        return now + wait_s > deadline_at


def _is_open(sequence: Sequence) -> bool:
    """Whether it has neither ended nor its first token."""
    has_ended = sequence.status is RequestStatus.ENDED
    return not has_ended and sequence.num_tokens == sequence.submission.num_prompt_tokens
