"""Outcomes of replays as text: one column a policy."""

from collections.abc import Sequence
from typing import Any

from hostelry.cli.status_text import columns
from hostelry.sim.ledger import SimulatedAct
from hostelry.sim.outcome import ReplayOutcome

MAX_ACTS = 40


def comparison_lines(outcomes: Sequence[ReplayOutcome]) -> list[str]:
    """A row a figure, a column a policy."""
    rows = [("", *(it.policy for it in outcomes))]
    cells = zip(*(_cells(it) for it in outcomes), strict=True)
    rows += [(row[0][0], *(text for _, text in row)) for row in cells]
    return columns(rows)


def _cells(outcome: ReplayOutcome) -> list[tuple[str, str]]:
    """The name and text of every figure."""
    return [
        ("requests", f"{outcome.num_requests:,}"),
        ("failed", f"{outcome.num_failed:,}"),
        ("cold (found no copy)", f"{outcome.num_cold:,}"),
        ("delayed until there was one", f"{outcome.num_delayed:,}"),
        *(_times("latency", outcome.latency_s)),
        *(_times("first token", outcome.first_token_s)),
        ("copy-seconds", f"{outcome.copy_s:,.0f}"),
        ("  of which needed", f"{outcome.needed_copy_s:,.0f}"),
        ("  overshoot", f"{outcome.overshoot_copy_s:,.0f}"),
        ("instance-hours", f"{outcome.instance_h:,.2f}"),
        ("most copies", f"{outcome.peak_copies:,}"),
        ("most instances", f"{outcome.peak_instances:,}"),
        ("acts out / in", f"{outcome.num_out:,} / {outcome.num_in:,}"),
        ("spurious acts", f"{outcome.num_spurious:,} ({outcome.spurious_per_h:.2f} an hour)"),
        ("t0 -> t1, median", _median([_between(it.rose_s, it.decided_s) for it in outcome.acts])),
        (
            "t1 -> t2, median",
            _median([_between(it.decided_s, it.answered_s) for it in outcome.acts]),
        ),
        ("digest", outcome.digest[:12]),
    ]


def _times(name: str, figures: Any) -> list[tuple[str, str]]:
    return [(f"{name} {which}", f"{figures[which]:.3f} s") for which in ("p50", "p90", "p99")]


def _between(from_s: float | None, to_s: float | None) -> float | None:
    return None if from_s is None or to_s is None else to_s - from_s


def _median(spans_s: Sequence[float | None]) -> str:
    known = sorted(it for it in spans_s if it is not None)
    return f"{known[len(known) // 2]:.1f} s" if known else "-"


def act_lines(outcome: ReplayOutcome) -> list[str]:
    """The first acts of one replay."""
    rows: list[tuple[str, ...]] = [("decided", "by", "copies", "t0->t1", "t1->t2", "", "why")]
    rows += [_act_row(it) for it in outcome.acts[:MAX_ACTS]]
    left = len(outcome.acts) - MAX_ACTS
    more = [f"... and {left:,} more; --json has them all"] if left > 0 else []
    return [f"{outcome.policy}:", *columns(rows), *more]


def _act_row(act: SimulatedAct) -> tuple[str, ...]:
    reaction_s, start_s = (
        _between(act.rose_s, act.decided_s),
        _between(act.decided_s, act.answered_s),
    )
    return (
        f"{act.decided_s:.0f} s",
        act.by or "bounds",
        f"{act.from_copies} -> {act.to_copies}",
        "" if reaction_s is None else f"{reaction_s:.1f} s",
        "" if start_s is None else f"{start_s:.1f} s",
        "spurious" if act.is_spurious else "",
        act.reason[:80],
    )
