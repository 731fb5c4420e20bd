"""Steps of a checked graph, and faults of documents and of steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.base.errors import HostelryError
from hostelry.graph.content import ValueType
from hostelry.graph.expression import GraphExpression

REQUEST = "input"  # the request's name in expressions


class OnError(Enum):
    """The effect of a step's failure: the call fails, lacks its value, or has another value."""

    FAIL = "fail"
    DROP = "drop"
    DEFAULT = "default"


class GatherBy(Enum):
    """The way to combine the answers of a scatter."""

    MEAN = "mean"
    WEIGHTED_MEAN = "weighted_mean"
    MAJORITY = "majority"
    MAX = "max"
    STACK = "stack"
    CONCATENATE = "concatenate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTarget:
    """The model of a call, as InvokeEndpoint names it, and the content types of both ways.

    `container` is the hostname of a container of a direct multi-container endpoint.
    """

    endpoint: str
    component: str | None = None
    variant: str | None = None
    model: str | None = None
    container: str | None = None
    content_type: str
    accept: str

    @property
    def title(self) -> str:
        """The target for people."""
        parts = [f"component {self.component}"] if self.component else []
        parts += [f"model {self.model}"] if self.model else []
        parts += [f"container {self.container}"] if self.container else []
        parts += [f"variant {self.variant}"] if self.variant else []
        return " of ".join([*parts, f"endpoint {self.endpoint}"])


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAction:
    """Invoke the target with the step's input."""

    target: CallTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAction:
    """Evaluate an expression."""

    expression: GraphExpression


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionAction:
    """Call a function of the archive, `MODULE:NAME`, with the step's input."""

    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAction:
    """Run the step whose case equals the value of `by`, or else `otherwise`."""

    by: GraphExpression
    cases: Mapping[str, str]
    otherwise: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterAction:
    """Run all branches at once. Fewer than `at_least` answers are a failure."""

    branches: tuple[str, ...]
    at_least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EachAction:
    """Invoke the target with each item of a list, in separate calls at the same time."""

    each: GraphExpression
    target: CallTarget
    at_least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherAction:
    """Combine a scatter's answers.

    `value` is the part of each answer to use. `score` ranks the answers (for MAX). `function`
    replaces `by`.
    """

    of: str
    by: GatherBy | None
    weights: Mapping[str, float] = field(default_factory=dict)
    value: GraphExpression | None = None
    score: GraphExpression | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeEntry:
    """A step of a cascade. Its answer is taken if `enough` is true for it (None: always)."""

    step: str
    enough: GraphExpression | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeAction:
    """Run the steps one after the other until an answer is taken."""

    entries: tuple[CascadeEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAction:
    """Keep the answers of a step by the content of this step's input."""

    of: str
    ttl_s: float
    max_bytes: int


StepAction = (
    CallAction
    | MapAction
    | FunctionAction
    | SwitchAction
    | ScatterAction
    | EachAction
    | GatherAction
    | CascadeAction
    | CacheAction
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphStep:
    """One step. `references` are the values that it reads, `branches` the steps that it may run.

    Without `timeout_s` the call's deadline is the only limit.
    """

    name: str
    kind: str
    action: StepAction
    input: GraphExpression
    references: tuple[str, ...]
    branches: tuple[str, ...]
    timeout_s: float | None = None
    on_error: OnError = OnError.FAIL
    default: Any = None
    type: ValueType = ValueType.ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPlan:
    """A checked graph, with the steps in an order in which each follows its needs.

    `content_type` is the type of requests, `deadline_s` the limit of a whole call.
    """

    steps: Mapping[str, GraphStep]
    output: str
    content_type: str
    deadline_s: float

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions of the archive that it calls."""
        found = [
            step.action.function
            for step in self.steps.values()
            if isinstance(step.action, FunctionAction | GatherAction)
        ]
        return tuple(dict.fromkeys(name for name in found if name is not None))

    @property
    def targets(self) -> tuple[CallTarget, ...]:
        """The models that it calls."""
        return tuple(
            step.action.target
            for step in self.steps.values()
            if isinstance(step.action, CallAction | EachAction)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphFault:
    """A fault of a document. `step` and `field` are empty if it concerns the whole document."""

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
    """The document is not a valid graph. `faults` has every fault."""

    def __init__(self, faults: Iterable[GraphFault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(fault.text for fault in self.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFault:
    """The failure of a step, or of the whole call.

    `status` is the HTTP status of the call: 424 for a target, 500 for a function, 504 for time, 508
    for a graph that calls itself.
    """

    step: str
    reason: str
    status: int

    @property
    def text(self) -> str:
        """The fault for the client."""
        return f"step {self.step}: {self.reason}"
