"""Measurements of drills as text."""

from collections.abc import Sequence

from hostelry.cli.status_text import columns
from hostelry_lab.cluster.text import cluster_lines
from hostelry_lab.jobs.text import jobs_lines
from hostelry_lab.neighbours import NeighbourReport
from hostelry_lab.outcome import DrillOutcome
from hostelry_lab.rollout.text import rollout_lines

HEADINGS = ("drill", "in flight", "errors", "seen", "served", "back", "lost", "p99", "")


def outcome_lines(outcome: DrillOutcome) -> list[str]:
    """One drill as text."""
    lines = [f"{outcome.drill}: {outcome.verdict}", f"  target    {outcome.target}"]
    if outcome.not_run is not None:
        return [*lines, f"  not run   {outcome.not_run}"]
    if outcome.left_out is not None:
        lines += [f"  not run   {outcome.left_out}"]
    if outcome.jobs is not None:
        lines += [f"  {line}" for line in jobs_lines(outcome.jobs)]
    if outcome.rollout is not None:
        lines += [f"  {line}" for line in rollout_lines(outcome.rollout)]
    if outcome.cluster is not None:
        lines += [f"  {line}" for line in cluster_lines(outcome.cluster)]
    if (calls := outcome.served) is not None:
        lines += [
            f"  load      {calls.num_calls} calls from the fault on, {calls.in_flight} of them in "
            f"flight at the fault; the slowest answer took {calls.slowest_s:.2f} s",
            f"  errors    {errors_text(outcome)}",
            f"  seen      {seconds(outcome.detected_s)} after the fault",
            f"  served    every call that began {seconds(calls.served_after_s)} after it, or later",
            f"  back      {seconds(outcome.back_s)} after the fault",
        ]
    if (found := outcome.beside) is not None:
        lines += [
            f"  p99       {p99_text(found)} before, during and after; "
            f"{100 * found.busy:.0f} % of the CPUs were busy",
        ]
        if found.saturated:
            lines += ["            the machine was saturated: the p99 is not judged"]
    lines += [f"  state     {', '.join(outcome.lost) or 'nothing lost'}; {outcome.kept}"]
    lines += [f"  {name:<9} {value}" for name, value in outcome.details.items()]
    return [*lines, *(f"  MISSED    {it}" for it in (*outcome.missed, *outcome.late))]


def table_lines(outcomes: Sequence[DrillOutcome]) -> list[str]:
    """A line for each drill."""
    return columns([HEADINGS, *(row(it) for it in outcomes)])


def row(outcome: DrillOutcome) -> tuple[str, ...]:
    """The cells of one drill."""
    calls = outcome.served
    if calls is None:
        return (outcome.drill, "-", "-", "-", "-", "-", "-", "-", outcome.verdict)
    return (
        outcome.drill,
        str(calls.in_flight),
        errors_text(outcome),
        seconds(outcome.detected_s),
        seconds(calls.served_after_s),
        seconds(outcome.back_s),
        str(len(outcome.lost)) if outcome.lost else "none",
        "-" if outcome.beside is None else p99_text(outcome.beside),
        outcome.verdict,
    )


def p99_text(found: NeighbourReport) -> str:
    """The neighbours' p99 in the three phases."""
    phases = (found.before, found.during, found.after)
    return " / ".join("-" if it.p99_s is None else f"{1e3 * it.p99_s:.0f} ms" for it in phases)


def errors_text(outcome: DrillOutcome) -> str:
    """The number of errors of each kind."""
    found = {} if outcome.served is None else outcome.served.errors
    return ", ".join(f"{count} {name}" for name, count in found.items()) or "0"


def seconds(value: float | None) -> str:
    """A duration."""
    return "-" if value is None else f"{value:.2f} s"
