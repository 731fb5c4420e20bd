"""The grid of `hostelry load --sweep`: its options, its cells, and the table of their results."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import isfinite, prod
from typing import Any

import msgspec

from hostelry.base.errors import UsageError
from hostelry.base.printable import one_line
from hostelry.cli.load.result import error_lines
from hostelry.cli.status_text import columns, number_text
from hostelry.fleet.shapes import describe_unknown_type

MAX_CELLS = 100
ENV = "env:"
SweptValue = int | float | str
Document = Mapping[str, Any]


def read_count(text: str, least: int, most: int) -> int:
    """A whole number within bounds. Raises ValueError."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError("expected a whole number") from None
    if not least <= value <= most:
        raise ValueError(f"expected {least} to {most}")
    return value


def read_number(text: str, least: float) -> float:
    """A finite number of at least `least`. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError("expected a number") from None
    if not isfinite(value) or value < least:
        raise ValueError(f"expected at least {least:g}")
    return value


def read_type(text: str) -> str:
    """A known instance type. Raises ValueError."""
    if (fault := describe_unknown_type(text)) is not None:
        raise ValueError(fault)
    return text


# Options that change the requests.
LOAD_VALUES: Mapping[str, Callable[[str], SweptValue]] = {
    "concurrency": partial(read_count, least=1, most=10_000),
    "rate": partial(read_number, least=0.01),
    "max-tokens": partial(read_count, least=1, most=1_000_000),
    "prompt-characters": partial(read_count, least=1, most=10_000_000),
    "body": str,
}
# Options that need another deployment of the model.
COPY_VALUES: Mapping[str, Callable[[str], SweptValue]] = {
    "copies": partial(read_count, least=1, most=1000),
    "cpus": partial(read_number, least=0.25),
    "memory-mb": partial(read_count, least=128, most=100_000_000),
    "instance-type": read_type,
}


class SweptOption(msgspec.Struct, frozen=True):
    """An option with the values that a sweep tries."""

    name: str
    values: tuple[SweptValue, ...]

    @property
    def needs_copy(self) -> bool:
        """True if each value needs another deployment of the model."""
        return self.name not in LOAD_VALUES


class SweepCell(msgspec.Struct, frozen=True):
    """A value of each swept option."""

    values: Mapping[str, SweptValue]

    @property
    def label(self) -> str:
        """The values on one line."""
        return one_line(" ".join(f"{name}={value}" for name, value in self.values.items()))

    @property
    def copy_values(self) -> dict[str, SweptValue]:
        """The values that need another deployment of the model."""
        return {name: it for name, it in self.values.items() if name not in LOAD_VALUES}


class CellResult(msgspec.Struct, frozen=True):
    """The result of a cell as JSON values, and the reason why it failed. None: it did not fail."""

    cell: SweepCell
    document: Document | None
    problem: str | None


def read_sweeps(texts: Sequence[str], *, finds: bool) -> list[SweptOption]:
    """The options of --sweep, those that need another deployment first. Raises UsageError."""
    swept = [read_sweep(it) for it in texts]
    names = [it.name for it in swept]
    twice = next((it for it in names if names.count(it) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep {twice} is given twice: write its values in one list")
    for name in ("concurrency", "rate"):
        if finds and name in names:
            raise UsageError(f"--find looks for a concurrency, so it excludes --sweep {name}")
    num_cells = prod(len(it.values) for it in swept)
    if num_cells > MAX_CELLS:
        raise UsageError(f"--sweep has {num_cells} combinations of values, more than {MAX_CELLS}")
    return sorted(swept, key=lambda it: not it.needs_copy)


def read_sweep(text: str) -> SweptOption:
    """One --sweep. Raises UsageError."""
    name, _, listed = text.partition("=")
    texts = listed.split(",")
    known = {**LOAD_VALUES, **COPY_VALUES}
    read = str if name.startswith(ENV) and name != ENV else known.get(name)
    if read is None:
        options = ", ".join([*known, f"{ENV}NAME"])
        raise UsageError(f"--sweep {text}: expected OPTION=VALUE,VALUE with one of {options}")
    if not all(texts) or len(set(texts)) < len(texts):
        raise UsageError(f"--sweep {text}: expected different values, separated by commas")
    values = []
    for one in texts:
        try:
            values.append(read(one))
        except ValueError as error:
            raise UsageError(f"--sweep {name}={one}: {error}") from None
    return SweptOption(name, tuple(values))


def build_cells(swept: Sequence[SweptOption]) -> list[SweepCell]:
    """All combinations of the values. The first option changes least often."""
    names = [it.name for it in swept]
    return [
        SweepCell(dict(zip(names, values, strict=True)))
        for values in product(*(it.values for it in swept))
    ]


def sweep_document(
    head: Document, swept: Sequence[SweptOption], results: Sequence[CellResult]
) -> dict[str, Any]:
    """The result of a sweep as JSON values. `head` names the target and the common options."""
    return {
        **head,
        "sweep": {
            "options": {it.name: list(it.values) for it in swept},
            "cells": [
                {"values": dict(one.cell.values), "problem": one.problem, "result": one.document}
                for one in results
            ],
        },
    }


def sweep_lines(
    target: str, swept: Sequence[SweptOption], results: Sequence[CellResult], num_cells: int
) -> list[str]:
    """The result of a sweep as a table, with problems and warnings of its cells."""
    num_measured = sum(it.document is not None for it in results)
    lines = [one_line(f"{target}: {num_measured} of {num_cells} combinations measured")]
    if results:
        lines += ["", *columns(table_rows([it.name for it in swept], results)), ""]
    for result in results:
        lines += [f"{result.cell.label}: {one_line(text)}" for text in remarks(result)]
    return lines


def remarks(result: CellResult) -> Iterator[str]:
    """The problem, the errors and the warnings of a cell."""
    if result.problem is not None:
        yield result.problem
    if result.document is not None:
        if result.document["errors"]:
            yield from error_lines(result.document)
        yield from result.document["warnings"]


def table_rows(names: Sequence[str], results: Sequence[CellResult]) -> Iterator[Sequence[str]]:
    """A row for each cell: its values and its measures."""
    documents = [it.document for it in results if it.document is not None]
    measures: list[tuple[str, Callable[[Document], str]]] = []
    if any("search" in it for it in documents):
        measures.append(("FOUND CONCURRENCY", lambda it: found_text(it["search"]["concurrency"])))
        measures.append(("LIMITED BY", lambda it: str(it["search"]["limited_by"])))
    measures.append(("REQ/S", lambda it: number_text(it["requests_per_s"])))
    has_tokens = any(it["tokens"] for it in documents)
    if has_tokens:
        measures.append(("TOKENS/S", lambda it: number_text(it["tokens_per_s"])))
    measures += spread_columns("LATENCY", "latency_ms")
    if has_tokens:
        measures += spread_columns("FIRST TOKEN", "first_token_ms")
        measures += spread_columns("INTER-TOKEN", "inter_token_ms")
    measures.append(("ERRORS", lambda it: str(it["requests"] - it["ok"])))
    yield [*(one_line(it) for it in names), *(head for head, _ in measures)]
    for result in results:
        values = [one_line(str(result.cell.values[name])) for name in names]
        shown = result.document
        yield [*values, *("-" if shown is None else text(shown) for _, text in measures)]


def spread_columns(head: str, member: str) -> Iterator[tuple[str, Callable[[Document], str]]]:
    """The columns of a latency: its median and its 99th percentile."""
    for percentile in ("p50", "p99"):
        yield f"{head} {percentile.upper()}", partial(spread_text, member, percentile)


def spread_text(member: str, percentile: str, document: Document) -> str:
    """A percentile in milliseconds. A dash if it was not measured."""
    spread = document[member]
    return "-" if spread is None else f"{number_text(spread[percentile])} ms"


def found_text(concurrency: int | None) -> str:
    """The concurrency that a search found."""
    return "none" if concurrency is None else str(concurrency)
