"""Aims, and whether a run met them. Only the aims are numbers that no run measured."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A measured value and its aim. `value` is `None` if it was not measured, as `why` says.

    The aim is `at_least` or `at_most`. A value without an aim has neither.
    """

    what: str
    value: float | None
    at_least: float | None = None
    at_most: float | None = None
    why: str = ""

    @property
    def verdict(self) -> str:
        """Met or not, or why that is unknown."""
        if self.value is None:
            return f"not measured: {self.why}"
        if self.at_least is not None:
            return "met" if self.value >= self.at_least else "not met"
        if self.at_most is not None:
            return "met" if self.value <= self.at_most else "not met"
        return "no aim"


def ratio(over: float | None, under: float | None) -> float | None:
    """`over` / `under`, or None if either is unknown."""
    return over / under if over is not None and under else None


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as a table."""
    rows = []
    for finding in findings:
        aim = "-"
        if finding.at_least is not None:
            aim = f">= {finding.at_least:g}"
        if finding.at_most is not None:
            aim = f"<= {finding.at_most:g}"
        value = "-" if finding.value is None else finding.value
        rows.append({"what": finding.what, "value": value, "aim": aim, "verdict": finding.verdict})
    return rows
