"""The lines of `hostelry ls`: endpoints with their components and adapters. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hostelry.cli.printable import one_line
from hostelry.cli.status_text import columns, duration
from hostelry.domain.failure_cause import in_a_line
from hostelry.domain.serving import ServedPart, serving_of

MAX_ALIKE = 10  # adapters of one base and status with a line each
HEAD = ("NAME", "KIND", "STATUS", "READY", "INSTANCES", "REQ/MIN", "AGE")
NOTHING = "There are no models yet: `hostelry deploy SOURCE` makes one."


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """One endpoint, component or adapter.

    Args:
        kind: "endpoint", "component", "adapter", or "unseen", a component that was not looked at.
        base: the base of an adapter.
        ready, desired: copies, of an endpoint of one model its instances; None where it has none.
        instances, variants: an endpoint's instance types with their numbers; its variants.
        requests_last_minute: None where it is not known.
        serving: what an endpoint does not serve that it should; None if it serves everything.
    """

    kind: str
    name: str
    endpoint: str
    status: str
    base: str | None = None
    ready: int | None = None
    desired: int | None = None
    instances: str = ""
    variants: tuple[str, ...] = ()
    requests_last_minute: float | None = None
    created_at: float | None = None
    reason: str | None = None
    serving: str | None = None


def with_serving(rows: Sequence[ModelRow]) -> list[ModelRow]:
    """The rows, where each endpoint that serves less than it should says so."""
    parts: dict[str, list[ServedPart]] = {}
    for row in rows:
        if row.kind != "endpoint" or row.desired is not None:
            has_copies = row.kind in ("endpoint", "component")
            desired = row.desired or 0 if has_copies else None
            part = ServedPart(status=row.status, ready=row.ready or 0, desired=desired)
            parts.setdefault(row.endpoint, []).append(part)
    return [
        replace(row, serving=serving_of(row.status, parts.get(row.name, ()))["trouble"])
        if row.kind == "endpoint"
        else row
        for row in rows
    ]


def in_order(rows: Iterable[ModelRow]) -> list[ModelRow]:
    """Endpoints by name, each followed by its components, these by their adapters."""
    given = sorted(rows, key=lambda it: it.name)
    endpoints = [it for it in given if it.kind == "endpoint"]
    return [row for endpoint in endpoints for row in (endpoint, *_beneath(endpoint, given))]


def _beneath(endpoint: ModelRow, rows: Sequence[ModelRow]) -> Iterator[ModelRow]:
    mine = [it for it in rows if it.endpoint == endpoint.name and it.kind != "endpoint"]
    bases = [it for it in mine if it.kind == "component"]
    names = {it.name for it in bases}
    for base in bases:
        yield base
        yield from (it for it in mine if it.kind == "adapter" and it.base == base.name)
    yield from (it for it in mine if it.kind == "adapter" and it.base not in names)
    yield from (it for it in mine if it.kind == "unseen")


def listing_lines(rows: Sequence[ModelRow], now: float, *, fold: bool = True) -> list[str]:
    """A line a row, and each failure's reason in a line below its row.

    With `fold`, more than MAX_ALIKE adapters of one base and status are one line, those that
    failed excepted.
    """
    return row_lines(in_order(rows), now, fold=fold) if rows else [NOTHING]


def row_lines(rows: Sequence[ModelRow], now: float, *, fold: bool = False) -> list[str]:
    """The lines of rows in their order, as `listing_lines` has them."""
    table: list[Sequence[str]] = [HEAD]
    reasons: dict[int, list[str]] = {}
    for row, others in _folded(rows, fold=fold):
        table.append(_cells(row, others, now))
        causes = [one_line(in_a_line(it)) for it in (row.serving, row.reason) if it]
        reasons[len(table) - 1] = [f"{_indent(row)}  ! {it}" for it in causes]
    lines = []
    for number, line in enumerate(columns(table)):
        lines += [line, *reasons.get(number, ())]
    return lines


def requests_in_last_minute(previous: float, current: float, now: float) -> float:
    """Requests of the last 60 s, from the counts of the last whole minute and the running one."""
    return current + previous * (1 - now % 60 / 60)


def _folded(
    rows: Sequence[ModelRow], *, fold: bool
) -> Iterator[tuple[ModelRow, Sequence[ModelRow]]]:
    """Each row to show, with the rows that it stands for beside itself."""
    groups: dict[tuple[str, ...], list[ModelRow]] = {}
    for row in rows:
        groups.setdefault(_group(row), []).append(row)
    for row in rows:
        group = groups[_group(row)]
        folds = (fold and len(group) > MAX_ALIKE and not row.reason) or row.kind == "unseen"
        if not folds:
            yield row, ()
        elif row is group[0]:
            yield row, group[1:]


def _group(row: ModelRow) -> tuple[str, ...]:
    own = () if row.kind in ("adapter", "unseen") else (row.name,)
    return (row.kind, row.endpoint, row.base or "", row.status, row.reason or "", *own)


def _indent(row: ModelRow) -> str:
    return "  " * ("endpoint", "component", "adapter").index(
        "component" if row.kind == "unseen" else row.kind
    )


def _cells(row: ModelRow, others: Sequence[ModelRow], now: float) -> tuple[str, ...]:
    name = row.name if not others else f"{row.name} ... {others[-1].name} ({len(others) + 1})"
    asked = [it.requests_last_minute for it in (row, *others)]
    known = [it for it in asked if it is not None]
    requests = f"{sum(known):.0f}" if known else "-"
    ready = "-" if row.ready is None else f"{row.ready}/{row.desired or 0}"
    age = "-" if row.created_at is None else duration(now - row.created_at)
    kind = "" if row.kind == "unseen" else row.kind
    return (_indent(row) + name, kind, row.status, ready, row.instances or "-", requests, age)


def variants_text(variants: Iterable[Mapping[str, object]], types: Mapping[str, str]) -> str:
    """The instance types of an endpoint's variants with their numbers."""
    counts: Counter[str] = Counter()
    for variant in variants:
        number = variant.get("CurrentInstanceCount") or variant.get("DesiredInstanceCount") or 0
        kind = types.get(str(variant["VariantName"]), "-")
        counts[kind] += int(str(number))
    return ", ".join(
        kind if kind == "serverless" else f"{number} x {kind}" for kind, number in counts.items()
    )
