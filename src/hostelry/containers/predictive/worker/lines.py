"""Lines of a body read one by one: what is wrong names the line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hostelry.containers.predictive.worker.refusal import BODY_ERRORS

SHOWN = 80


def of_lines(text: str, read: Callable[[str], Any]) -> list[Any]:
    """What `read` gives for each line that is not blank. Raises ValueError with the line."""
    return [
        of_line(number, line, read)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    ]


def of_line(number: int, line: str, read: Callable[[str], Any]) -> Any:
    """What `read` gives for the line. Raises ValueError with its number."""
    try:
        return read(line)
    except BODY_ERRORS as error:
        raise ValueError(f"line {number}: {error}") from None


def rows_of(text: list[str], separator: str = ",") -> list[list[float]]:
    """The numbers of each line. Raises ValueError with the line."""
    rows: list[list[float]] = []
    for number, line in enumerate(text, 1):
        rows.append(of_line(number, line, lambda each: numbers_of(each, separator)))
        if len(rows[-1]) != len(rows[0]):
            raise ValueError(
                f"its lines have different numbers of fields: line {number} has {len(rows[-1])}, "
                f"line 1 has {len(rows[0])}"
            )
    return rows


def numbers_of(line: str, separator: str) -> list[float]:
    """The numbers of a line, an empty field NaN. Raises ValueError with the field."""
    found = []
    for at, field in enumerate(line.split(separator), 1):
        try:
            found.append(float(field.strip().strip('"') or "nan"))
        except ValueError:
            shown = field.strip()[:SHOWN]
            raise ValueError(f"field {at} is {shown!r}, which is not a number") from None
    return found


def features_of(line: str) -> list[tuple[int, float]]:
    """The indices and values of a line ``[label] index:value ...`` of libsvm.

    Raises ValueError with the field.
    """
    found = []
    for at, field in enumerate(line.split(), 1):
        index, colon, value = field.partition(":")
        if not colon:
            continue
        try:
            found.append((int(index), float(value)))
        except ValueError:
            raise ValueError(f"field {at} is {field[:SHOWN]!r}, which is not index:value") from None
    return found
