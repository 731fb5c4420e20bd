"""State of one call of a graph: outcomes of steps, and choices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.graph.faults import StepFault


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The end of a step: a value, a failure of the whole call, or nothing (`is_dropped`).

    `body` with `content_type` are the value as a target sent it. `branches` name the answers of a
    scatter's list. `is_streamed`: the answer has been passed to the client.
    """

    value: Any = None
    fault: StepFault | None = None
    is_dropped: bool = False
    body: bytes | None = field(default=None, repr=False)
    content_type: str = ""
    branches: tuple[str, ...] = ()
    is_streamed: bool = False


class Act(Enum):
    """What a ready step needs."""

    CALL = "call"  # its target
    FUNCTION = "function"  # a function of the archive
    LOCAL = "local"  # `settle`
    LOOK_UP = "look up"  # its cache, by its input
    STORE = "store"  # its cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyStep:
    """A step, or the call of one item of it, that can be carried out now.

    `is_last`: its answer is the whole call's as it is.
    """

    name: str
    act: Act
    item: int | None = None
    is_last: bool = False

    @property
    def key(self) -> str:
        """Its name in `GraphState.outcomes`."""
        return self.name if self.item is None else item_key(self.name, self.item)


@dataclass(slots=True)
class GraphState:
    """The state of one call; begins with the request.

    `choices`: of a switch the step that is run, of a cascade its position, of a cache the key that
    was not there. `items`: of a scatter over a list.
    """

    outcomes: dict[str, StepOutcome]
    choices: dict[str, Any] = field(default_factory=dict)
    items: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    def scope(self, names: Mapping[str, Any] | tuple[str, ...]) -> dict[str, Any]:
        """The values of those steps; of a dropped one None."""
        return {name: self.outcomes[name].value for name in names}


def item_key(name: str, item: int) -> str:
    """The name of one item of a step."""
    return f"{name}[{item}]"
