"""The action of a step's row, with the fields that its kind needs. Pure."""

import re

from hostelry.graph.document import MAX_BRANCHES, CallRow, ScatterRow, StepRow
from hostelry.graph.expression import GraphExpression, GraphExpressionError, read_expression
from hostelry.graph.steps import (
    CacheAction,
    CallAction,
    CallTarget,
    CascadeAction,
    CascadeEntry,
    EachAction,
    FunctionAction,
    GatherAction,
    GatherBy,
    MapAction,
    ScatterAction,
    StepAction,
    SwitchAction,
)

FUNCTION = re.compile(r"[A-Za-z_]\w{0,63}(\.[A-Za-z_]\w{0,63})*:[A-Za-z_]\w{0,63}", re.ASCII)
RESOURCE = re.compile(r"[A-Za-z0-9](-*[A-Za-z0-9]){0,62}")  # an endpoint's or component's name
HEADER = re.compile(r"[!-~]([ -~]{0,1022}[!-~])?")
CONTENT_TYPE = re.compile(r"[\w!#$&^.+-]{1,100}/[\w!#$&^.+-]{1,100}( *;[ -~]{0,100})?", re.ASCII)
MAX_CACHE_BYTES = 4 * 1024**3
MAX_TTL_S = 30 * 86_400.0


class FieldFaultError(Exception):
    """One field of a step is invalid."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def parse_expression(field: str, text: str, *, of_answer: bool = False) -> GraphExpression:
    """Parse the expression of a field. Raises FieldFaultError."""
    try:
        return read_expression(text, of_answer=of_answer)
    except GraphExpressionError as error:
        raise FieldFaultError(field, str(error)) from None


class ActionReader:
    """Reads the action of one row. Raises FieldFaultError."""

    def __init__(self, row: StepRow) -> None:
        self._row = row

    def action(self, kind: str) -> StepAction:
        """The action of the kind `kind`."""
        readers = {
            "call": self._call,
            "map": self._map,
            "switch": self._switch,
            "scatter": self._scatter,
            "gather": self._gather,
            "cascade": self._cascade,
            "cache": self._cache,
        }
        return readers[kind]()

    def _call(self) -> CallAction:
        assert self._row.call is not None
        return CallAction(target=check_target(self._row.call, "call"))

    def _map(self) -> MapAction | FunctionAction:
        given = self._row.map
        if isinstance(given, str):
            return MapAction(expression=parse_expression("map", given))
        assert given is not None
        return FunctionAction(function=check_function("map.function", given.function))

    def _switch(self) -> SwitchAction:
        row = self._row.switch
        assert row is not None
        if not row.cases:
            raise FieldFaultError("switch.cases", "there is none")
        check_count("switch.cases", len(row.cases))
        by = parse_expression("switch.by", row.by)
        return SwitchAction(by=by, cases=row.cases, otherwise=row.otherwise)

    def _scatter(self) -> ScatterAction | EachAction:
        given = self._row.scatter
        row = given if isinstance(given, ScatterRow) else ScatterRow(to=given)
        if (row.to is None) == (row.each is None) or (row.each is None) != (row.call is None):
            raise FieldFaultError("scatter", "it is a list of steps (to), or each with call")
        if row.each is not None and row.call is not None:
            if row.at_least < 0:
                raise FieldFaultError("scatter.at_least", f"it is {row.at_least}; 0 or more")
            each = parse_expression("scatter.each", row.each)
            target = check_target(row.call, "scatter.call")
            return EachAction(each=each, target=target, at_least=row.at_least)
        branches = row.to or ()
        check_count("scatter", len(branches))
        if len(set(branches)) != len(branches):
            raise FieldFaultError("scatter", "a step is named twice")
        if not 0 <= row.at_least <= len(branches):
            raise FieldFaultError(
                "scatter.at_least", f"it is {row.at_least}; 0 to {len(branches)} here"
            )
        return ScatterAction(branches=branches, at_least=row.at_least)

    def _gather(self) -> GatherAction:
        row = self._row.gather
        assert row is not None
        if (row.by is None) == (row.function is None):
            raise FieldFaultError("gather", "it needs either by or function")
        if row.weights is not None and row.by != "weighted_mean":
            raise FieldFaultError("gather.weights", "they belong to by: weighted_mean")
        if row.score is not None and row.by != "max":
            raise FieldFaultError("gather.score", "it belongs to by: max")
        if self._row.timeout_s is not None and row.function is None:
            raise FieldFaultError("timeout_s", "it belongs to a function")
        return GatherAction(
            of=row.of,
            by=None if row.by is None else GatherBy(row.by),
            weights=row.weights or {},
            value=parse_answer_expression("gather.value", row.value),
            score=parse_answer_expression("gather.score", row.score),
            function=None
            if row.function is None
            else check_function("gather.function", row.function),
        )

    def _cascade(self) -> CascadeAction:
        rows = self._row.cascade or ()
        if len(rows) < 2:
            raise FieldFaultError("cascade", f"it has {len(rows)} steps; two or more")
        check_count("cascade", len(rows))
        for position, row in enumerate(rows):
            is_last = position == len(rows) - 1
            if (row.enough is None) != is_last:
                reason = "the last step's answer is always taken" if is_last else "it is missing"
                raise FieldFaultError(f"cascade[{position}].enough", reason)
        return CascadeAction(
            entries=tuple(
                CascadeEntry(
                    step=row.step,
                    enough=parse_answer_expression(f"cascade[{position}].enough", row.enough),
                )
                for position, row in enumerate(rows)
            )
        )

    def _cache(self) -> CacheAction:
        row = self._row.cache
        assert row is not None
        if not 0 < row.ttl_s <= MAX_TTL_S:
            raise FieldFaultError("cache.ttl_s", f"it is {row.ttl_s:g}; to {MAX_TTL_S:g}")
        if not 0 < row.max_bytes <= MAX_CACHE_BYTES:
            raise FieldFaultError("cache.max_bytes", f"it is {row.max_bytes}; to {MAX_CACHE_BYTES}")
        return CacheAction(of=row.of, ttl_s=row.ttl_s, max_bytes=row.max_bytes)


def check_count(field: str, count: int) -> None:
    """Raise FieldFaultError without branches, or with too many."""
    if not 0 < count <= MAX_BRANCHES:
        raise FieldFaultError(field, f"there are {count}; 1 to {MAX_BRANCHES}")


def parse_answer_expression(field: str, text: str | None) -> GraphExpression | None:
    """Parse the expression of a field that is evaluated on an answer. None without a text."""
    return None if text is None else parse_expression(field, text, of_answer=True)


def check_function(field: str, text: str) -> str:
    """The name of a function of the archive. Raises FieldFaultError."""
    if not FUNCTION.fullmatch(text):
        raise FieldFaultError(
            field, f"{text[:80]!r} is no MODULE:NAME, such as features:rows of code/features.py"
        )
    return text


def check_target(row: CallRow, field: str) -> CallTarget:
    """The target of a call. Raises FieldFaultError."""
    if row.endpoint is None:
        raise FieldFaultError(f"{field}.endpoint", "it is missing")
    for name in ("endpoint", "component", "variant", "container"):
        value = getattr(row, name)
        if value is not None and not RESOURCE.fullmatch(value):
            raise FieldFaultError(
                f"{field}.{name}",
                f"{value[:80]!r} is not a name of 1 to 63 letters, digits and single hyphens",
            )
    if row.model is not None and not HEADER.fullmatch(row.model):
        raise FieldFaultError(f"{field}.model", f"{row.model[:80]!r} is no TargetModel")
    if row.component is not None and (row.variant or row.model or row.container):
        reason = "it goes with neither variant, model nor container"
        raise FieldFaultError(f"{field}.component", reason)
    if row.container is not None and row.model is not None:
        raise FieldFaultError(f"{field}.container", "it does not go with model")
    for name in ("content_type", "accept"):
        if not CONTENT_TYPE.fullmatch(getattr(row, name)):
            value = getattr(row, name)[:80]
            raise FieldFaultError(f"{field}.{name}", f"{value!r} is no content type")
    return CallTarget(
        endpoint=row.endpoint,
        component=row.component,
        variant=row.variant,
        model=row.model,
        container=row.container,
        content_type=row.content_type,
        accept=row.accept,
    )
