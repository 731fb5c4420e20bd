"""Faults of documents, each with its file, line and field."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hostelry.base.errors import TerminalError

Path = tuple[str | int, ...]
"""The keys and positions that lead from a document to a value."""
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class DocumentFault:
    """A fault at a place; `field` is empty where it belongs to the whole file."""

    place: SourcePlace
    field: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.field}: {self.reason}"
            if self.field
            else (f"{self.place}: {self.reason}")
        )


class DocumentError(TerminalError):
    """Documents that cannot be applied; has every fault that was found."""

    def __init__(self, faults: Iterable[DocumentFault]) -> None:
        self.faults: Sequence[DocumentFault] = tuple(faults)
        lines = [str(it) for it in self.faults[:MAX_SHOWN]]
        left = len(self.faults) - MAX_SHOWN
        more = [f"... and {left} more"] if left > 0 else []
        one = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__("\n".join([f"{one} in the documents; nothing was changed", *lines, *more]))


def dotted(path: Path) -> str:
    """A path as text: endpoints.shop.ProductionVariants[0].InstanceType."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")
