"""Advice on the number of adapters: how many a copy serves before its throughput falls. PURE.

A step reads the weights of each adapter in it, and only some adapters fit into memory. So a copy
with more adapters in use makes fewer tokens a second, sooner if their rank is large. The number
depends on machine and base. `python -m benchmarks.many_adapters --mix-lines` measures it.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.values import AdapterThroughput, FitModel, group_adapters

KEPT_SHARE = 0.95  # of the best measured throughput
MAX_BASES, MAX_RANKS = 5, 5
REMEDY = (
    "measure with `python -m benchmarks.many_adapters --mix-lines`, and give"
    " platform.adapter_throughput"
)


class CopyLimit(msgspec.Struct, frozen=True, kw_only=True):
    """The adapters of a rank that a copy serves with KEPT_SHARE of the best throughput or more.

    `is_least` if the throughput does not fall below it with the most adapters that were measured.
    """

    rank: int
    adapters: int
    is_least: bool


def list_limit_advice(
    models: Sequence[FitModel], traffic: MixTraffic, measured: Sequence[AdapterThroughput]
) -> tuple[str, ...]:
    """A sentence for each base whose adapters get calls. Without `measured` it is unknown."""
    by_base = group_adapters(it for it in models if traffic.rate(it))
    lines = [
        f"{base}: {len(mine):,} {'has' if len(mine) == 1 else 'have'} calls. "
        f"{_judge(mine, [it for it in measured if it.base == base])}"
        for base, mine in list(by_base.items())[:MAX_BASES]
    ]
    more = len(by_base) - len(lines)
    return (*lines, f"{more:,} more bases have adapters with calls") if more else tuple(lines)


def find_limit(points: Sequence[AdapterThroughput]) -> CopyLimit:
    """The limit by the points of one rank, at least one, with a straight line between two.

    A throughput that is lower with fewer adapters than the best is not a fall.
    """
    ordered = sorted(points, key=lambda it: it.adapters)
    last = max(ordered, key=lambda it: it.tokens_per_s)
    least_per_s = KEPT_SHARE * last.tokens_per_s
    for point in ordered[ordered.index(last) + 1 :]:
        if point.tokens_per_s < least_per_s:
            part = (last.tokens_per_s - least_per_s) / (last.tokens_per_s - point.tokens_per_s)
            more = int(part * (point.adapters - last.adapters))
            return CopyLimit(rank=last.rank, adapters=last.adapters + more, is_least=False)
        last = point
    return CopyLimit(rank=last.rank, adapters=last.adapters, is_least=True)


def _judge(adapters: Sequence[FitModel], points: Sequence[AdapterThroughput]) -> str:
    if not points:
        return f"How many of them a copy serves is unknown: {REMEDY}"
    asked = Counter(it.adapter_rank for it in adapters)
    known = sorted({it.rank for it in points})
    counted_as = {it: _find_measured_rank(it, known) for it in asked}
    limits = {
        rank: find_limit([it for it in points if it.rank == rank])
        for rank in known
        if rank in counted_as.values()
    }
    parts = [*_list_limits(limits), *_list_ranks(asked, counted_as, known)]
    unknown = [it for it, rank in counted_as.items() if it is not None and rank is None]
    if unknown:
        parts.append(
            f"Of rank {max(unknown)} it is unknown, because the largest measured rank is "
            f"{known[-1]}: {REMEDY}"
        )
    else:
        parts.append(_count_copies(len(adapters), limits))
    return ". ".join(parts)


def _find_measured_rank(rank: int | None, known: Sequence[int]) -> int | None:
    """The next measured rank. An unknown rank counts as the largest. None if all are smaller."""
    if rank is None:
        return known[-1]
    return next((it for it in known if it >= rank), None)


def _list_limits(limits: Mapping[int, CopyLimit]) -> list[str]:
    if not limits:
        return []
    texts = [
        f"{'at least ' if limit.is_least else ''}{limit.adapters:,} of rank {limit.rank}"
        for limit in list(limits.values())[:MAX_RANKS]
    ]
    if len(limits) > MAX_RANKS:
        texts.append(f"others of {len(limits) - MAX_RANKS:,} more ranks")
    found = [
        f"A copy serves {' or '.join(texts)} before its throughput falls below {KEPT_SHARE:.0%} of"
        " the best measured"
    ]
    if any(it.is_least for it in limits.values()):
        found.append("More were not measured")
    return found


def _list_ranks(
    asked: Mapping[int | None, int],
    counted_as: Mapping[int | None, int | None],
    known: Sequence[int],
) -> list[str]:
    """Sentences on ranks that are not given, and on ranks between measured ones."""
    found = []
    if None in asked:
        found.append(
            f"{asked[None]:,} without adapter_rank count as rank {known[-1]}, the largest measured"
        )
    between = sorted(
        it for it, rank in counted_as.items() if it is not None and rank not in (None, it)
    )
    if between:
        texts = [f"{it} as {counted_as[it]}" for it in between[:MAX_RANKS]]
        more = ", ..." if len(between) > MAX_RANKS else ""
        found.append(f"Other ranks count as the next measured one: {', '.join(texts)}{more}")
    return found


def _count_copies(num: int, limits: Mapping[int, CopyLimit]) -> str:
    """The copies for all adapters, as if they had the rank of which a copy serves fewest."""
    fewest = min(limits.values(), key=lambda it: it.adapters)
    copies = math.ceil(num / fewest.adapters)
    if copies == 1:
        return "One copy is enough"
    if len(limits) == 1 and not fewest.is_least:
        return f"They need {copies:,} copies"
    return f"They need at most {copies:,} copies, with up to {fewest.adapters:,} adapters on each"
