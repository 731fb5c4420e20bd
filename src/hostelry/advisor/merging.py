"""Advice on a base's busiest adapter: merged, or unmerged with the others. PURE.

Merged weights are as fast as the base's, but a step that also has other requests reads both sets of
weights. So merging pays from some share of the adapter on, which depends on the machine.
`python -m benchmarks.merged_adapter` measures it.
"""

from collections.abc import Iterator, Sequence

from hostelry.advisor.traffic import MixTraffic
from hostelry.advisor.values import FitModel, group_adapters

LEAST_SHARE = 0.5  # below it, merging is not considered
MAX_BASES = 5


def list_merge_advice(
    models: Sequence[FitModel], traffic: MixTraffic, merge_from_share: float | None
) -> tuple[str, ...]:
    """A sentence for each base whose busiest adapter gets LEAST_SHARE of its work or more.

    `merge_from_share` is the share from which merging pays. None is unknown.
    """
    found = list(_list_busiest(models, traffic))
    lines = [
        f"{base.name}: {adapter.name} gets {share:.0%} of its work. "
        f"{_judge(adapter.name, share, merge_from_share)}"
        for base, adapter, share in found[:MAX_BASES]
    ]
    more = len(found) - len(lines)
    return (*lines, f"{more:,} more bases have such an adapter") if more else tuple(lines)


def _list_busiest(
    models: Sequence[FitModel], traffic: MixTraffic
) -> Iterator[tuple[FitModel, FitModel, float]]:
    """Yield bases with their busiest adapter, and its share of their work."""
    work = {it.name: traffic.rate(it) * traffic.mean_work_s(it) for it in models}
    by_base = group_adapters(models)
    for base in models:
        adapters = by_base.get(base.name, ())
        total = work[base.name] + sum(work[it.name] for it in adapters)
        if not adapters or not total:
            continue
        busiest = max(adapters, key=lambda it: work[it.name])
        share = work[busiest.name] / total
        if share >= LEAST_SHARE:
            yield base, busiest, share


def _judge(adapter: str, share: float, merge_from_share: float | None) -> str:
    if merge_from_share is None:
        return (
            "Merged or not is unknown: measure with `python -m benchmarks.merged_adapter`, and give"
            " platform.merge_from_share"
        )
    if share < merge_from_share:
        return f"Merging pays from {merge_from_share:.0%} on, so serve it with the others"
    return (
        f"Merging pays from {merge_from_share:.0%} on: set OPTION_FUSE_ADAPTER={adapter}, and"
        " reserve memory for a second set of weights"
    )
