"""The use of quotas, which all gateway workers of a host count together.

Two files have it. `windows` has the use of the last minute, and for each worker a column with the
holds of its calls. `days` has the use since midnight UTC. It outlives every process, and its layout
does not depend on the number of workers.

A call is checked by all its limits and counted under one lock, or not at all. If a process dies
meanwhile, at most its own call is counted in part, because single words are whole. The supervisor
of a dead worker and the worker's successor clear its column, which ends the holds of its calls.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from hostelry.base.json import decode
from hostelry.dataplane.shared.keyed_slots import LABEL_BYTES, KeyedSlots
from hostelry.dataplane.shared.mapped_file import LockedError
from hostelry.domain.quota import GrantedShares
from hostelry.quotas.decision import DAY_S, LimitRefusal, LimitUse, decide
from hostelry.quotas.matching import QuotaCount
from hostelry.quotas.measures import (
    CONCURRENCY,
    DAY_MEASURES,
    DAY_TOKENS,
    MINUTE_MEASURES,
    NUM_MEASURES,
    REQUESTS,
    Amounts,
)
from hostelry.quotas.windows import NUM_SECONDS, add, advance, find_wait_s, sum_since

LOG = logging.getLogger(__name__)
WINDOWS_KIND, DAYS_KIND = b"hstquota", b"hstqdays"
NUM_SLOTS = 4096
# Words of a slot of `windows`.
HEAD = 0  # the newest second with a count, of the monotonic clock
REFUSED = 1
WARNED = REFUSED + NUM_MEASURES
SHARES = WARNED + NUM_MEASURES  # the granted part of a limit, plus 1. 0: none was granted
RINGS = SHARES + NUM_MEASURES
COLUMNS = RINGS + len(MINUTE_MEASURES) * NUM_SECONDS
# Words of a slot of `days`.
DAY, DAY_USE, DAY_WORDS = 0, 1, 8
IDLE_S = 2 * NUM_SECONDS
READER = -1  # instead of a worker's number: it changes nothing
UNLOCKED_S = 1.0  # a process that holds the lock for too long is not waited for again


class Hold(msgspec.Struct, frozen=True, gc=False):
    """The hold of an admitted call on one count: pairs of measures and amounts."""

    counted: QuotaCount
    at: int
    amounts: tuple[tuple[int, int], ...]


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one call: the refusal, or its holds, and the limits that only warn."""

    refusal: LimitRefusal | None
    uses: list[LimitUse]
    warnings: list[LimitUse]
    holds: tuple[Hold, ...] = ()


class CountUse(msgspec.Struct, frozen=True, kw_only=True):
    """The use of one count, by measure. `label` has the quota's id and the values of `*`.

    `shares` are the granted parts of limits, or -1.
    """

    key: bytes
    label: bytes
    shares: tuple[int, ...]
    used: tuple[int, ...]
    held: tuple[int, ...]
    refused: tuple[int, ...]
    warned: tuple[int, ...]


class QuotaTable:
    """One worker at the table.

    Its column is cleared at first. If the files cannot be made, the worker counts alone.

    Args:
        windows, days: the files. None: memory of this process.
        place: the number of the worker, from 0, or READER, and the number of workers.
        now_s: seconds of a monotonic clock that all processes of the machine share.
        get_num_hosts: counts the hosts with gateways. Without a granted share, each uses an even
            part of a limit.
        num_slots: of `windows`. `days` has twice as many.
    """

    def __init__(
        self,
        windows: Path | None,
        days: Path | None,
        place: tuple[int, int],
        now_s: Callable[[], float],
        get_num_hosts: Callable[[], int] = lambda: 1,
        num_slots: int = NUM_SLOTS,
    ) -> None:
        worker, num_workers = place
        self._get_num_hosts = get_num_hosts
        self._num_workers = num_workers
        self._column = COLUMNS + worker * NUM_MEASURES
        self._now_s = now_s
        num_words = COLUMNS + num_workers * NUM_MEASURES
        self._windows = open_slots(windows, WINDOWS_KIND, num_slots, num_words)
        self._days = open_slots(days, DAYS_KIND, 2 * num_slots, DAY_WORDS)
        self._words, self._day_words = self._windows.words, self._days.words
        self._places: dict[bytes, tuple[int, int]] = {}
        self._unlocked_until_s = 0.0
        self._is_full = False
        if worker != READER:
            clear_column(self._windows, worker)

    def take(self, counts: Sequence[QuotaCount], amounts: Amounts, now: float) -> Taken:
        """Count a call in all its counts if it fits, else in none. `now` is in epoch seconds.

        A quota that only warns is counted in any case. While another process hangs with the lock,
        workers count without it, and one call of each may be too many.
        """
        if self._now_s() >= self._unlocked_until_s:
            try:
                with self._windows.alone():
                    return self._take(counts, amounts, now)
            except LockedError as error:
                self._note_locked(error)
        return self._take(counts, amounts, now)

    def settle(self, holds: Sequence[Hold], amounts: Amounts, now: float) -> None:
        """End the holds of a call that has ended, and charge its `amounts`."""
        if all(measure == CONCURRENCY for it in holds for measure, _ in it.amounts):
            for hold in holds:  # no other process writes this worker's column
                for measure, amount in hold.amounts:
                    self._words[hold.at + self._column + measure] -= amount
            return
        if self._now_s() >= self._unlocked_until_s:
            try:
                with self._windows.alone():
                    self._settle(holds, amounts, now)
                    return
            except LockedError as error:
                self._note_locked(error)
        self._settle(holds, amounts, now)

    def list_uses(self, now: float) -> Iterator[CountUse]:
        """Yield the use of each count that has any. Read without the lock."""
        now_s, today = int(self._now_s()), int(now // DAY_S)
        days = {key: (at, label) for at, key, label in self._days.each()}
        for at, key, label in self._windows.each():
            day_at = days.pop(key, (-1, b""))[0]
            yield self._read_use(key, label, (at, day_at), (now_s, today))
        for key, (day_at, label) in days.items():
            if self._day_words[day_at + DAY] == today:
                yield self._read_use(key, label, (-1, day_at), (now_s, today))

    def grant(self, grants: Iterable[GrantedShares], now: float) -> None:
        """Set the parts of limits that this host may use."""
        now_s, today = int(self._now_s()), int(now // DAY_S)
        try:
            with self._windows.alone():
                for granted in grants:
                    label = encode_label(granted.quota_id, granted.values)
                    place = self._open_places(bytes.fromhex(granted.key), label, now_s, today)
                    if place is not None:
                        for measure, share in enumerate(granted.shares):
                            self._words[place[0] + SHARES + measure] = share + 1
        except LockedError as error:
            LOG.warning("the shares of quotas stay as they are: %s", error)

    def sync(self) -> None:
        """Write the use of the day to the disk."""
        self._days.sync()

    def close(self) -> None:
        """Release the memory. The files stay."""
        self._windows.close()
        self._days.close()

    def _take(self, counts: Sequence[QuotaCount], amounts: Amounts, now: float) -> Taken:
        now_s, today = int(self._now_s()), int(now // DAY_S)
        found = [(it, self._find_places(it, now_s, today)) for it in counts]
        places = [(it, place) for it, place in found if place is not None]
        uses = [
            self._find_use(it, measure, limit, place, (amounts, now_s))
            for it, place in places
            for measure, limit in it.limits
        ]
        refusal, warnings = decide(uses, now)
        if refusal is not None:
            self._note(REFUSED, refusal.use)
            return Taken(refusal=refusal, uses=uses, warnings=warnings)
        for use in warnings:
            self._note(WARNED, use)
        holds = tuple([self._hold(it, place[0], uses, amounts, now_s) for it, place in places])
        return Taken(refusal=None, uses=uses, warnings=warnings, holds=holds)

    def _hold(
        self, counted: QuotaCount, at: int, uses: list[LimitUse], amounts: Amounts, now_s: int
    ) -> Hold:
        words, held = self._words, []
        for use in uses:
            if use.counted is not counted:
                continue
            if use.measure == REQUESTS:
                add(words, at + RINGS, now_s, amounts[REQUESTS])
            else:
                words[at + self._column + use.measure] += use.asked
                held.append((use.measure, use.asked))
        return Hold(counted, at, tuple(held))

    def _settle(self, holds: Sequence[Hold], amounts: Amounts, now: float) -> None:
        now_s, today = int(self._now_s()), int(now // DAY_S)
        for hold in holds:
            if not hold.amounts:
                continue
            place = self._find_places(hold.counted, now_s, today)
            if place is None:
                continue
            at, day_at = place
            for measure, amount in hold.amounts:
                if at == hold.at:
                    self._words[at + self._column + measure] -= amount
                if measure in MINUTE_MEASURES:
                    add(self._words, at + RINGS + measure * NUM_SECONDS, now_s, amounts[measure])
                elif measure in DAY_MEASURES:
                    self._day_words[day_at + DAY_USE + measure - DAY_TOKENS] += amounts[measure]

    def _find_use(
        self,
        counted: QuotaCount,
        measure: int,
        limit: int,
        at: tuple[int, int],
        asked: tuple[Amounts, int],
    ) -> LimitUse:
        words, (window_at, day_at), (amounts, now_s) = self._words, at, asked
        used, wait_s = 0, None
        granted = words[window_at + SHARES + measure] - 1
        share = limit // self._get_num_hosts() if granted < 0 else min(granted, limit)
        amount = min(amounts[measure], share) if share else amounts[measure]
        first = window_at + COLUMNS + measure
        end = window_at + COLUMNS + self._num_workers * NUM_MEASURES
        held = sum(words[first:end:NUM_MEASURES])
        if measure in MINUTE_MEASURES:
            ring = window_at + RINGS + measure * NUM_SECONDS
            used = sum(words[ring : ring + NUM_SECONDS])
            excess = used + held + amount - share
            if excess > 0:
                wait_s = find_wait_s(words, ring, now_s, excess)
        elif measure in DAY_MEASURES:
            used = self._day_words[day_at + DAY_USE + measure - DAY_TOKENS]
        return LimitUse(
            counted=counted,
            measure=measure,
            limit=limit,
            used=used,
            held=held,
            asked=amount,
            share=share,
            wait_s=wait_s,
        )

    def _find_places(self, counted: QuotaCount, now_s: int, today: int) -> tuple[int, int] | None:
        """Find the slots of a count, and clear ended seconds and days. None if a file is full."""
        key, words, days = counted.key, self._words, self._day_words
        place = self._places.get(key)
        if place is None or not (
            self._windows.has(place[0], key) and self._days.has(place[1], key)
        ):
            label = encode_label(counted.quota.id, counted.values)
            place = self._open_places(key, label, now_s, today)
            if place is None:
                return None
        at, day_at = place
        head_s = words[at + HEAD]
        if head_s != now_s:
            if head_s > now_s + 1 or now_s - head_s >= NUM_SECONDS:  # of an earlier boot, or idle
                head_s = now_s - NUM_SECONDS
            for ring in range(len(MINUTE_MEASURES)):
                advance(words, at + RINGS + ring * NUM_SECONDS, head_s, now_s)
            words[at + HEAD] = max(head_s, now_s)
        if days[day_at + DAY] != today:
            for word in range(day_at + DAY_USE, day_at + DAY_WORDS):
                days[word] = 0
            days[day_at + DAY] = today  # last: a process that dies before has changed nothing
        return place

    def _open_places(
        self, key: bytes, label: bytes, now_s: int, today: int
    ) -> tuple[int, int] | None:
        words, days = self._words, self._day_words

        def is_idle(at: int) -> bool:
            columns = words[at + COLUMNS : at + self._windows.num_words]
            return not 0 <= now_s - words[at + HEAD] < IDLE_S and not any(columns)

        at = self._windows.find(key) or self._windows.add(key, label, is_idle)
        day_at = self._days.find(key) or self._days.add(
            key, label, lambda it: days[it + DAY] < today
        )
        if at is None or day_at is None:
            if not self._is_full:
                self._is_full = True
                LOG.error("quotas have too many counts: the next ones limit nothing")
            return None
        if len(self._places) >= self._windows.num_slots:
            self._places.clear()
        self._places[key] = at, day_at
        return at, day_at

    def _read_use(
        self, key: bytes, label: bytes, at: tuple[int, int], now: tuple[int, int]
    ) -> CountUse:
        (window_at, day_at), (now_s, today) = at, now
        words, used, held = self._words, [0] * NUM_MEASURES, [0] * NUM_MEASURES
        refused = warned = (0,) * NUM_MEASURES
        shares = (-1,) * NUM_MEASURES
        if window_at >= 0:
            for measure in MINUTE_MEASURES:
                ring = window_at + RINGS + measure * NUM_SECONDS
                used[measure] = sum_since(words, ring, words[window_at + HEAD], now_s)
            end = window_at + self._windows.num_words
            for measure in range(NUM_MEASURES):
                held[measure] = sum(words[window_at + COLUMNS + measure : end : NUM_MEASURES])
            refused = tuple(words[window_at + REFUSED : window_at + REFUSED + NUM_MEASURES])
            warned = tuple(words[window_at + WARNED : window_at + WARNED + NUM_MEASURES])
            shares = tuple(
                [it - 1 for it in words[window_at + SHARES : window_at + SHARES + NUM_MEASURES]]
            )
        if day_at >= 0 and self._day_words[day_at + DAY] == today:
            for measure in DAY_MEASURES:
                used[measure] = self._day_words[day_at + DAY_USE + measure - DAY_TOKENS]
        return CountUse(
            key=key,
            label=label,
            shares=shares,
            used=tuple(used),
            held=tuple(held),
            refused=refused,
            warned=warned,
        )

    def _note(self, what: int, use: LimitUse) -> None:
        place = self._places.get(use.counted.key)
        if place is not None:
            self._words[place[0] + what + use.measure] += 1

    def _note_locked(self, error: LockedError) -> None:
        self._unlocked_until_s = self._now_s() + UNLOCKED_S
        LOG.warning("quotas are counted without the lock for %g s: %s", UNLOCKED_S, error)


def open_slots(path: Path | None, kind: bytes, num_slots: int, num_words: int) -> KeyedSlots:
    """Open the slots of a file. If it cannot be made, slots of this process alone."""
    try:
        return KeyedSlots(path, kind, num_slots, num_words)
    except (OSError, LockedError) as error:
        LOG.warning("%s cannot be opened (%s): this worker counts quotas alone", path, error)
        return KeyedSlots(None, kind, num_slots, num_words)


def clear_worker(windows: Path, worker: int, num_workers: int, num_slots: int = NUM_SLOTS) -> None:
    """End the holds of a dead worker's calls, if the workers have a table."""
    if windows.exists():
        num_words = COLUMNS + num_workers * NUM_MEASURES
        slots = open_slots(windows, WINDOWS_KIND, num_slots, num_words)
        clear_column(slots, worker)
        slots.close()


def clear_column(windows: KeyedSlots, worker: int) -> None:
    """Clear the column of a worker. No other process writes it."""
    column = COLUMNS + worker * NUM_MEASURES
    for at, _, _ in windows.each():
        for word in range(at + column, at + column + NUM_MEASURES):
            if windows.words[word]:
                windows.words[word] = 0


def encode_label(quota_id: str, values: Sequence[str]) -> bytes:
    """Encode the quota's id and the values of its selectors `*`, which no digest shows."""
    label = msgspec.json.encode((quota_id, *values))
    return label if len(label) <= LABEL_BYTES else msgspec.json.encode((quota_id, "..."))


def decode_label(label: bytes) -> tuple[str, tuple[str, ...]]:
    """Decode the quota's id and the values. Empty if the label is damaged."""
    try:
        quota_id, *values = decode(label, tuple[str, ...])
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        return "", ()
    return quota_id, tuple(values)
