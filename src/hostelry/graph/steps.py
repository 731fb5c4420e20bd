"""Steps of a checked graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from hostelry.graph.expression import GraphExpression
from hostelry.graph.value_types import ValueType

REQUEST = "input"  # the request's name in expressions


class OnError(Enum):
    """What follows from a step's failure: the call fails, lacks its value, or has another."""

    FAIL = "fail"
    DROP = "drop"
    DEFAULT = "default"


class GatherBy(Enum):
    """How the answers of a scatter become one."""

    MEAN = "mean"
    WEIGHTED_MEAN = "weighted_mean"
    MAJORITY = "majority"
    MAX = "max"
    STACK = "stack"
    CONCATENATE = "concatenate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTarget:
    """The model of a call, as InvokeEndpoint names it, and the content types of both ways.

    `container` is one of a direct multi-container endpoint, by its hostname.
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
    """Run the step of the case that `by` has, else `otherwise`."""

    by: GraphExpression
    cases: Mapping[str, str]
    otherwise: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScatterAction:
    """Run all branches at once; fewer than `at_least` answers are a failure."""

    branches: tuple[str, ...]
    at_least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EachAction:
    """Invoke the target with each item of a list, at once."""

    each: GraphExpression
    target: CallTarget
    at_least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherAction:
    """Make one value of a scatter's answers.

    `value` is the part of each answer that counts; `score` ranks them (of MAX). `function`
    takes the place of `by`.
    """

    of: str
    by: GatherBy | None
    weights: Mapping[str, float] = field(default_factory=dict)
    value: GraphExpression | None = None
    score: GraphExpression | None = None
    function: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeEntry:
    """A step of a cascade; its answer is taken where `enough` holds of it (None: always)."""

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

    `timeout_s` None: only the whole call's deadline holds.
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
    """A checked graph: steps in an order in which each follows what it needs.

    `content_type` is that of requests, `deadline_s` the limit of a whole call.
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
