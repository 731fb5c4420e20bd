"""Faults: of a graph's document, and of a step of one call."""

from collections.abc import Iterable
from dataclasses import dataclass

from hostelry.base.errors import HostelryError


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFault:
    """A fault of a document; `step` and `field` are empty where it belongs to the whole."""

    reason: str
    step: str = ""
    field: str = ""

    @property
    def text(self) -> str:
        """The fault, with its place."""
        places = [f"step {self.step}"] if self.step else []
        places += [f"field {self.field}"] if self.field else []
        return f"{', '.join(places)}: {self.reason}" if places else self.reason


class GraphDocumentError(HostelryError):
    """A document that is no graph; has every fault that was found."""

    def __init__(self, faults: Iterable[GraphFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.text for fault in self.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFault:
    """The end of a step that failed, or of the whole call.

    `status` is the HTTP status that the call ends with: 424 where a target failed, 500 for a
    function, 504 for time, 508 for a graph that calls itself.
    """

    step: str
    reason: str
    status: int

    @property
    def text(self) -> str:
        """The fault for the client."""
        return f"step {self.step}: {self.reason}"
