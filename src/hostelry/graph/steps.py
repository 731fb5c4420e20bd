"""Steps of a checked graph, and faults of documents and of steps."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

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


class CallTarget(msgspec.Struct, frozen=True, kw_only=True):
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


class CallAction(msgspec.Struct, frozen=True, kw_only=True):
    """Invoke the target with the step's input."""

    target: CallTarget


class MapAction(msgspec.Struct, frozen=True, kw_only=True):
    """Evaluate an expression."""

    expression: GraphExpression


class FunctionAction(msgspec.Struct, frozen=True, kw_only=True):
    """Call a function of the archive, `MODULE:NAME`, with the step's input."""

    function: str


class SwitchAction(msgspec.Struct, frozen=True, kw_only=True):
    """Run the step whose case equals the value of `by`, or else `otherwise`."""

    by: GraphExpression
    cases: Mapping[str, str]
    otherwise: str | None


class ScatterAction(msgspec.Struct, frozen=True, kw_only=True):
    """Run all branches at once. Fewer than `at_least` answers are a failure."""

    branches: tuple[str, ...]
    at_least: int


class EachAction(msgspec.Struct, frozen=True, kw_only=True):
    """Invoke the target with each item of a list, in separate calls at the same time."""

    each: GraphExpression
    target: CallTarget
    at_least: int


class GatherAction(msgspec.Struct, frozen=True, kw_only=True):
    """Combine a scatter's answers.

    `value` is the part of each answer to use. `score` ranks the answers (for MAX). `function`
    replaces `by`.
    """

    of: str
    by: GatherBy | None
    weights: Mapping[str, float] = msgspec.field(default_factory=dict)
    value: GraphExpression | None = None
    score: GraphExpression | None = None
    function: str | None = None


class CascadeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a cascade. Its answer is taken if `enough` is true for it (None: always)."""

    step: str
    enough: GraphExpression | None


class CascadeAction(msgspec.Struct, frozen=True, kw_only=True):
    """Run the steps one after the other until an answer is taken."""

    entries: tuple[CascadeEntry, ...]


class CacheAction(msgspec.Struct, frozen=True, kw_only=True):
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


class GraphStep(msgspec.Struct, frozen=True, kw_only=True):
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


class GraphPlan(msgspec.Struct, frozen=True, kw_only=True):
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


class GraphFault(msgspec.Struct, frozen=True, kw_only=True):
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


class StepFault(msgspec.Struct, frozen=True, kw_only=True):
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
