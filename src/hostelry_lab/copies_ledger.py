"""Sizes of the drill `many-copies`, and the promises that it found broken. Pure.

| found | verdict |
| --- | --- |
| a component that fits does not serve, or does not end, while the drill watches | missed |
| a copy that served has another process | missed |
| a component without room has a place, no reason, or another one | missed |
| a Describe is refused, or takes longer than HANG_S | missed |
| a Describe takes longer than DESCRIBE_S, and the machine has CPUs left | late |
| a declaration is refused, or something is left at the end | missed |
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hostelry_lab.neighbours import SATURATED

MOST_COPIES, LEAST_COPIES = 100, 2
COPY_BYTES = 32 * 1024 * 1024
MEMORY_SHARE = 0.5  # of the machine's available memory
DESCRIBE_S, HANG_S = 0.5, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiesFound:
    """Observations of the drill. An instant is `None` if the drill did not see it.

    Instants are seconds after the first declaration, except `gone_s`, which is seconds after the
    first deletion. `num_placeless` components have no place. `untrue` has the reasons that are not
    true.
    """

    num_copies: int
    num_without_room: int
    first_s: float | None
    agent_s: float | None
    ready_s: float | None
    gone_s: float | None
    refused: tuple[str, ...]
    restarted: tuple[str, ...]
    num_placeless: int
    untrue: Mapping[str, str]
    describe_s: float
    num_describes_refused: int
    busy: float


def num_that_fit(most: int, available_bytes: int) -> int:
    """How many copies that fit the drill declares: `most`, or fewer for lack of memory."""
    return min(most, int(available_bytes * MEMORY_SHARE) // COPY_BYTES)


def untrue_reasons(reasons: Mapping[str, str], memory_mb: int, instance: str) -> Mapping[str, str]:
    """The reasons that do not say how much memory is needed, and how much the instance has free.

    The drill requests sizes at which only memory can be short.
    """

    def is_true(reason: str) -> bool:
        need, _, free = reason.partition("; ")
        is_short = free.startswith(("the largest free block is ", "no memory is free"))
        return need.startswith(f"a copy needs {memory_mb} MB") and is_short and instance in free

    return {name: reason for name, reason in reasons.items() if not is_true(reason)}


def restarted_copies(served: Mapping[str, int], now: Mapping[str, int]) -> tuple[str, ...]:
    """The copies that served with a process, and do not serve with it now."""
    return tuple(sorted(name for name, pid in served.items() if now.get(name) != pid))


def broken_promises(found: CopiesFound) -> list[str]:
    """A sentence for each missed target of correctness, and for each hang."""
    never = {
        "no copy served": found.first_s,
        "the agent had no successor": found.agent_s,
        f"not all of {found.num_copies} copies served": found.ready_s,
        "not all copies were gone": found.gone_s,
    }
    missed = [
        f"{what} while the drill watched" for what, seconds in never.items() if seconds is None
    ]
    if found.refused:
        missed.append(f"{len(found.refused)} declarations were refused: {found.refused[-1]}")
    if found.restarted:
        missed.append(f"copies that served were restarted: {', '.join(found.restarted)}")
    if found.num_placeless != found.num_without_room:
        missed.append(
            f"{found.num_placeless} components have no place, not {found.num_without_room}"
        )
    missed += [
        f"{name}, which has no room, has another reason: {reason or 'none'}"
        for name, reason in found.untrue.items()
    ]
    if found.num_describes_refused:
        missed.append(f"{found.num_describes_refused} Describes were refused")
    if found.describe_s > HANG_S:
        missed.append(f"a Describe took {found.describe_s:.1f} s")
    return missed


def too_slow(found: CopiesFound) -> list[str]:
    """A sentence for Describe's missed target. A machine without CPUs left is not judged."""
    if found.busy >= SATURATED or not DESCRIBE_S < found.describe_s <= HANG_S:
        return []
    return [f"a Describe took {found.describe_s:.2f} s (target {DESCRIBE_S:g} s)"]
