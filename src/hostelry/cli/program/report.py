"""The report on a program's AWS calls, bounded whatever the program does. Pure but for adding."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hostelry.cli.program.call import SeenCall, Verdict

MAX_ROWS = 500  # a program calls some dozens of operations
MAX_MESSAGE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Calls of one operation with the same result; `message` is the first one's."""

    service: str
    operation: str
    verdict: Verdict
    error: str
    host: str
    count: int
    message: str


@dataclass(slots=True)
class CallReport:
    """The calls so far, by operation and result; those beyond `MAX_ROWS` rows are counted only."""

    _rows: dict[tuple[str, ...], Row] = field(default_factory=dict)
    uncounted: int = 0

    def add(self, call: SeenCall) -> None:
        """Count a call."""
        key = (call.service, call.operation, call.verdict, call.error, call.host)
        row = self._rows.get(key)
        if row is not None:
            self._rows[key] = replace(row, count=row.count + 1)
        elif len(self._rows) >= MAX_ROWS:
            self.uncounted += 1
        else:
            self._rows[key] = Row(
                service=call.service[:MAX_MESSAGE],
                operation=call.operation[:MAX_MESSAGE],
                verdict=call.verdict,
                error=call.error[:MAX_MESSAGE],
                host=call.host[:MAX_MESSAGE],
                count=1,
                message=call.message[:MAX_MESSAGE],
            )

    @property
    def rows(self) -> list[Row]:
        """All rows, by service and operation."""
        return sorted(self._rows.values(), key=lambda it: (it.service, it.operation, it.error))

    @property
    def unserved(self) -> list[Row]:
        """Operations and fields that are not served."""
        bad = (Verdict.UNSERVED, Verdict.REFUSED)
        return [row for row in self.rows if row.verdict in bad]

    @property
    def strays(self) -> list[Row]:
        """Calls to AWS's own hosts that were not answered well here."""
        return [row for row in self.rows if row.host and row.verdict is not Verdict.OK]

    def to_json(self) -> dict[str, Any]:
        """The report for programs."""
        return {
            "calls": [as_json(row) for row in self.rows],
            "unserved": [as_json(row) for row in self.unserved],
            "uncounted": self.uncounted,
        }


def as_json(row: Row) -> dict[str, Any]:
    """A row for programs."""
    shown = {
        "service": row.service,
        "operation": row.operation,
        "result": str(row.verdict),
        "error": row.error,
        "count": row.count,
        "message": row.message,
        "aws_host": row.host,
    }
    return {name: value for name, value in shown.items() if value != ""}


def report_lines(report: CallReport) -> Iterator[str]:
    """The report for people: a table, then what is not served, then the verdict."""
    rows = report.rows
    if not rows:
        yield "no AWS call was made"
        return
    names = [f"{row.service}:{row.operation}" for row in rows]
    width = max(len(name) for name in names)
    for name, row in zip(names, rows, strict=True):
        result = row.verdict if not row.error else f"{row.verdict} {row.error}"
        where = f"  (called {row.host})" if row.host else ""
        yield f"{name:<{width}}  {row.count:>5}  {result}{where}"
    if report.uncounted:
        yield f"... and {report.uncounted} calls of further operations"
    for row in report.unserved:
        yield f"not served: {row.service}:{row.operation}: {row.message or row.error}"
    yield verdict_line(report)


def verdict_line(report: CallReport) -> str:
    """The verdict in one line."""
    total = sum(row.count for row in report.rows) + report.uncounted
    bad = sum(row.count for row in report.unserved)
    if bad:
        return f"{bad} of {total} AWS calls need what this hostelry does not serve"
    return f"{total} AWS calls, all of them served"


def stray_lines(report: CallReport) -> Iterator[str]:
    """A line for each call to a host of AWS's that failed here; none of them left the machine."""
    for row in report.strays:
        yield (
            f"{row.host} {row.service}:{row.operation} ({row.count}): answered here with"
            f" {row.error or 'an error'}; nothing was sent to AWS"
        )
