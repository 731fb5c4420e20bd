"""Values about documents: places, faults, resources, changes of fields, and steps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import ObjectOrder

Path = tuple[str | int, ...]
"""The keys and positions that lead from a document to a value."""
MAX_SHOWN = 20
Params = Mapping[str, Any]
OWNER_TAG = "hostelry:applied-by"
"""On what `apply` made: the name of the set of documents."""
NAME_TAG = "hostelry:applied-as"
"""On models and configurations, whose names may end in a hash: their name in the documents."""
UNNAMED_SET = "unnamed"
NAMES = ("VariantName", "Name", "Id", "ContainerHostname", "AlarmName", "InstanceType")
"""Members by which the items of a list are known."""
OLD_VERSION = "a newer version is in its place"
"""The reason of deletions of former models and configurations."""


class SourcePlace(msgspec.Struct, frozen=True):
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class DocumentFault(msgspec.Struct, frozen=True):
    """A fault at a place. `field` is empty if the fault concerns the whole file."""

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
    """Invalid documents. Has every fault."""

    def __init__(self, faults: Iterable[DocumentFault]) -> None:
        self.faults: Sequence[DocumentFault] = tuple(faults)
        lines = [str(it) for it in self.faults[:MAX_SHOWN]]
        left = len(self.faults) - MAX_SHOWN
        more = [f"... and {left} more"] if left > 0 else []
        one = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        super().__init__("\n".join([f"{one} in the documents; nothing was changed", *lines, *more]))


def dot_path(path: Path) -> str:
    """A path as text: endpoints.shop.ProductionVariants[0].InstanceType."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.lstrip(".")


class ResourceKind(Enum):
    """Kinds of resources. A kind may need the kinds before it."""

    ARTIFACT = "artifact"
    MODEL = "model"
    ENDPOINT = "endpoint"
    COMPONENT = "component"
    TARGET = "scalable target"
    POLICY = "scaling policy"
    ACTION = "scheduled action"
    ALARM = "alarm"
    CONFIG = "endpoint configuration"


class ResourceKey(msgspec.Struct, frozen=True):
    """A resource. For a policy or an action, `within` is the name of its target."""

    kind: ResourceKind
    name: str
    within: str = ""

    def __str__(self) -> str:
        name = f"{self.name} of {self.within.partition('|')[0]}" if self.within else self.name
        return f"{self.kind.value} {name.partition('|')[0] if not self.within else name}"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as the documents want it.

    `params` are in the form of `hostelry.cli.declared.forms`, with the documents' names of models.
    Without `tags` (None) the present tags stay. With `only_created` an existing model or policy
    does not change.
    """

    key: ResourceKey
    params: Params
    place: SourcePlace
    tags: Mapping[str, str] | None = None
    only_created: bool = False


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """A resource as observed. Its params are in the same form as `Wanted.params`.

    Tags are read by `arn`. `live` has the instance counts and weights of an endpoint by
    variant. `reason` is the FailureReason.
    """

    key: ResourceKey
    params: Params
    arn: str = ""
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    status: str = "InService"
    reason: str = ""
    config_name: str = ""
    live: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The name of the set that created the resource. Empty if no set did."""
        return self.tags.get(OWNER_TAG, "")

    @property
    def is_busy(self) -> bool:
        """Whether a change of the resource is under way."""
        return self.status not in ("InService", "Failed")


Resources = Mapping[ResourceKey, Observed]


def target_key(resource_id: str, dimension: str) -> ResourceKey:
    """The key of a scalable target."""
    return ResourceKey(ResourceKind.TARGET, f"{resource_id}|{dimension}")


def split_target(name: str) -> tuple[str, str]:
    """Resource id and dimension of a target's name."""
    resource_id, _, dimension = name.partition("|")
    return resource_id, dimension


class Absent(msgspec.Struct, frozen=True):
    """No value."""


ABSENT = Absent()


class FieldChange(msgspec.Struct, frozen=True):
    """A field with its values before and after. ABSENT stands for a missing value."""

    field: str
    before: Any
    after: Any


def changes(before: Any, after: Any, path: str = "") -> list[FieldChange]:
    """Every difference, with the path of the innermost field."""
    return list(_changes(before, after, path))


def _changes(before: Any, after: Any, path: str) -> Iterator[FieldChange]:
    before, after = _alike(before, after), _alike(after, before)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in dict.fromkeys((*before, *after)):
            inner = f"{path}.{name}" if path else str(name)
            yield from _changes(before.get(name, ABSENT), after.get(name, ABSENT), inner)
    elif isinstance(before, list) and isinstance(after, list) and before != after:
        one, other = _by_name(before), _by_name(after)
        if one is None or other is None:
            yield FieldChange(path, before, after)
            return
        for name in dict.fromkeys((*one, *other)):
            inner = f"{path}[{name}]"
            yield from _changes(one.get(name, ABSENT), other.get(name, ABSENT), inner)
    elif before != after:
        yield FieldChange(path, before, after)


def _alike(value: Any, other: Any) -> Any:
    """An empty value of the kind of `other` for an absent `value`, so that members are compared."""
    if value is not ABSENT or not other:
        return value
    if isinstance(other, Mapping):
        return {}
    has_names = isinstance(other, list) and all(_get_name(it) is not None for it in other)
    return [] if has_names else value


def _by_name(items: list[Any]) -> dict[str, Any] | None:
    """The items by their names. None if a name is missing or not unique."""
    if all(isinstance(it, Mapping) and set(it) == {"Name", "Value"} for it in items):
        return {str(it["Name"]): it["Value"] for it in items}
    if len(items) == 1 and isinstance(items[0], Mapping):
        return {str(_get_name(items[0]) or 0): items[0]}
    names = [_get_name(it) for it in items]
    if None in names or len(set(names)) < len(names):
        return None
    return dict(zip(map(str, names), items, strict=True))


def _get_name(item: Any) -> Any:
    if not isinstance(item, Mapping):
        return None
    return next((item[name] for name in NAMES if name in item), None)


class StepAct(Enum):
    """The effect of a step on its resource."""

    UPLOAD = "upload"
    CREATE = "create"
    UPDATE = "update"
    TAG = "tag"
    DELETE = "delete"


class Until(Enum):
    """The status that ends a wait for a resource."""

    IN_SERVICE = "InService"
    GONE = "deleted"


class UploadedFile(msgspec.Struct, frozen=True):
    """Objects of the local artifact at `path`, which one step uploads into `bucket`."""

    path: str
    bucket: str
    orders: tuple[ObjectOrder, ...]

    @property
    def uri(self) -> str:
        """The S3 address of its first object."""
        return f"s3://{self.bucket}/{self.orders[0].key}"

    @property
    def num_bytes(self) -> int:
        """The total size of its files."""
        return sum(it.num_bytes for it in self.orders)


class ApplyStep(msgspec.Struct, frozen=True, kw_only=True):
    """One call of `service`, or the upload of `file`.

    `needs` has the numbers of earlier steps. `params` may have references to policies
    (`policy/RESOURCE/NAME`) instead of ARNs, which AWS chooses. `because` gives the reason, if the
    changes do not show it.
    """

    number: int
    act: StepAct
    key: ResourceKey
    service: str = ""
    operation: str = ""
    params: Mapping[str, Any] = msgspec.field(default_factory=dict)
    file: UploadedFile | None = None
    needs: Sequence[int] = ()
    until: Until | None = None
    changes: Sequence[FieldChange] = ()
    because: str = ""

    @property
    def is_destructive(self) -> bool:
        """Whether the step ends something that serves."""
        return self.operation in ("DeleteEndpoint", "DeleteInferenceComponent")


class StepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The steps from the observed to the wanted state. Empty if both are equal.

    `num_same` counts resources that need no step.
    """

    steps: Sequence[ApplyStep]
    num_same: int = 0
