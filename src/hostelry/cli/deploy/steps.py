"""The present state of a deployment, as the platform's APIs show it. Plain values."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import ObjectOrder
from hostelry.cli.deploy.plan import AdapterOrder, ModelDeployment

IN_SERVICE, FAILED, DELETING = "InService", "Failed", "Deleting"


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentEndpoint:
    """The endpoint. `has_models` is true if its variants have models instead of components."""

    status: str
    config: str
    reason: str = ""
    instance_type: str | None = None
    has_models: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentComponent:
    """A component or an adapter. `uri` is an adapter's archive."""

    endpoint: str
    status: str
    reason: str = ""
    model: str = ""
    memory_mb: int = 0
    cpus: float = 0.0
    accelerators: float = 0.0
    copies: int = 0
    base: str = ""
    uri: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """What is there: of objects and models those of the deployment alone.

    `bounds` are the scalable target's, None without one. `has_policy`: deploy's own.
    """

    has_bucket: bool = False
    objects: frozenset[str] = frozenset()
    has_model: bool = False
    has_config: bool = False
    endpoint: PresentEndpoint | None = None
    components: Mapping[str, PresentComponent] = field(default_factory=dict)
    bounds: tuple[int, int] | None = None
    has_policy: bool = False


class Action(Enum):
    """The action of a step, with its text."""

    CREATE_CONFIG = "create endpoint config"
    CREATE_ENDPOINT = "create endpoint"
    UPDATE_ENDPOINT = "update endpoint"
    DELETE_ENDPOINT = "delete the failed endpoint"
    CREATE_BUCKET = "create bucket"
    UPLOAD = "upload to"
    CREATE_MODEL = "create model"
    CREATE_COMPONENT = "create inference component"
    UPDATE_COMPONENT = "update inference component"
    SET_COPIES = "set the copies of"
    DELETE_COMPONENT = "delete the failed component"
    CREATE_ADAPTER = "create adapter"
    UPDATE_ADAPTER = "update adapter"
    SCALE = "scale"
    WAIT = "wait for"
    FAIL = "failed:"


@dataclass(frozen=True, slots=True)
class DeployStep:
    """An action on a named resource, with the reason of WAIT and FAIL."""

    action: Action
    name: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The step in words."""
        return f"{self.action.value} {self.name}"


def changes(deployment: ModelDeployment, present: Present) -> list[DeployStep]:
    """The remaining steps in order. Raises TerminalError if names are taken."""
    check_free(deployment, present)
    return [*_endpoint(deployment, present), *_model(deployment, present),
            *_component(deployment, present), *_adapters(deployment, present),
            *_scaling(deployment, present)]  # fmt: skip


def next_step(
    deployment: ModelDeployment, present: Present, tried: Collection[DeployStep]
) -> DeployStep | None:
    """The next step. None if everything is in service.

    `tried` are the steps that this run has taken: what failed after one of them is not tried again.
    """
    failure = _failure(deployment, present, tried)
    if failure is not None:
        return failure
    for step in changes(deployment, present):
        waits_for = _needs(step, deployment, present)
        if waits_for is None:
            return step
        if step.action is not Action.SCALE:
            return DeployStep(Action.WAIT, waits_for)
    return next(iter(_list_waits(deployment, present)), None)


def check_free(deployment: ModelDeployment, present: Present) -> None:
    """Raise TerminalError if the names belong to other resources."""
    name = deployment.name
    if present.endpoint is not None and present.endpoint.has_models:
        raise TerminalError(
            f"there is an endpoint {name} with models of its own, which deploy does not change: "
            "choose another --name, or delete it"
        )
    for component, one in present.components.items():
        if one.endpoint != name:
            raise TerminalError(
                f"there is an inference component {component} on endpoint {one.endpoint}: choose "
                "another --name, or delete it"
            )


def missing_objects(deployment: ModelDeployment, present: Present) -> list[ObjectOrder]:
    """The objects that are not there yet."""
    return [it for it in deployment.objects if it.key not in present.objects]


def _endpoint(deployment: ModelDeployment, present: Present) -> Iterator[DeployStep]:
    name, endpoint = deployment.name, present.endpoint
    if not present.has_config:
        yield DeployStep(Action.CREATE_CONFIG, deployment.config.name)
    if endpoint is not None and endpoint.status == FAILED:
        for component in sorted(present.components, key=lambda it: it == name):
            yield DeployStep(Action.DELETE_COMPONENT, component)
        yield DeployStep(Action.DELETE_ENDPOINT, name)
    if endpoint is None or endpoint.status in (FAILED, DELETING):
        yield DeployStep(Action.CREATE_ENDPOINT, name)
    elif endpoint.config != deployment.config.name:
        yield DeployStep(Action.UPDATE_ENDPOINT, name)


def _model(deployment: ModelDeployment, present: Present) -> Iterator[DeployStep]:
    missing = missing_objects(deployment, present)
    if missing and not present.has_bucket:
        yield DeployStep(Action.CREATE_BUCKET, deployment.bucket)
    if missing:
        folders = {it.key.rpartition("/")[0] for it in missing}
        place = missing[0].key if len(missing) == 1 else min(folders)
        place = place if len(folders) == 1 else place.partition("/")[0]
        yield DeployStep(Action.UPLOAD, f"s3://{deployment.bucket}/{place}")
    if not present.has_model:
        yield DeployStep(Action.CREATE_MODEL, deployment.model.name)


def _component(deployment: ModelDeployment, present: Present) -> Iterator[DeployStep]:
    name = deployment.name
    found = present.components.get(name)
    if found is not None and found.status == FAILED:
        for adapter, one in present.components.items():
            if one.base == name:
                yield DeployStep(Action.DELETE_COMPONENT, adapter)
        yield DeployStep(Action.DELETE_COMPONENT, name)
    if found is None or found.status in (FAILED, DELETING):
        yield DeployStep(Action.CREATE_COMPONENT, name)
    elif _differs(deployment, found):
        yield DeployStep(Action.UPDATE_COMPONENT, name)
    elif deployment.copies is not None and found.copies != deployment.copies:
        yield DeployStep(Action.SET_COPIES, name)


def _differs(deployment: ModelDeployment, found: PresentComponent) -> bool:
    asked = deployment.requirements
    return (
        found.model != deployment.model.name
        or found.memory_mb * 1024 * 1024 != asked.min_memory_bytes
        or found.cpus != asked.cpus
        or found.accelerators != asked.accelerators
    )


def _adapters(deployment: ModelDeployment, present: Present) -> Iterator[DeployStep]:
    for order in deployment.adapters:
        found = present.components.get(order.component)
        if found is not None and found.status == FAILED:
            yield DeployStep(Action.DELETE_COMPONENT, order.component)
        if found is None or found.status in (FAILED, DELETING):
            yield DeployStep(Action.CREATE_ADAPTER, order.component)
        elif found.uri != order.uri:
            yield DeployStep(Action.UPDATE_ADAPTER, order.component)


def _scaling(deployment: ModelDeployment, present: Present) -> Iterator[DeployStep]:
    scaling = deployment.scaling
    if scaling is None:
        return
    if present.bounds != (scaling.min_copies, scaling.max_copies) or not present.has_policy:
        yield DeployStep(Action.SCALE, deployment.name)


def _needs(step: DeployStep, deployment: ModelDeployment, present: Present) -> str | None:
    """The text of what a step waits for. None if the step can be taken."""
    endpoint = present.endpoint
    component = present.components.get(step.name)
    base = present.components.get(deployment.name)
    match step.action:
        case Action.CREATE_ENDPOINT if endpoint is not None:
            return f"endpoint {step.name} to be deleted"
        case Action.UPDATE_ENDPOINT | Action.CREATE_COMPONENT | Action.UPDATE_COMPONENT if (
            endpoint is None or endpoint.status != IN_SERVICE
        ):
            return f"endpoint {deployment.name}"
        case Action.CREATE_COMPONENT | Action.CREATE_ADAPTER if component is not None:
            return f"component {step.name} to be deleted"
        case Action.UPDATE_COMPONENT | Action.UPDATE_ADAPTER | Action.SET_COPIES if (
            component is None or component.status != IN_SERVICE
        ):
            return f"component {step.name}"
        case Action.CREATE_ADAPTER | Action.UPDATE_ADAPTER if (
            base is None or base.status != IN_SERVICE
        ):
            return f"component {deployment.name}"
        case Action.DELETE_COMPONENT if component is not None and component.status == DELETING:
            return f"component {step.name} to be deleted"
        case Action.DELETE_ENDPOINT if present.components:
            return "its components to be deleted"
        case Action.SCALE if base is None:
            return f"component {deployment.name}"
    return None


def _failure(
    deployment: ModelDeployment, present: Present, tried: Collection[DeployStep]
) -> DeployStep | None:
    """The failure of a step of this run. None without a failure."""
    name, endpoint = deployment.name, present.endpoint
    if endpoint is not None:
        for action in (Action.CREATE_ENDPOINT, Action.UPDATE_ENDPOINT):
            was_tried = DeployStep(action, name) in tried
            rolled_back = (
                endpoint.status == IN_SERVICE and endpoint.config != deployment.config.name
            )
            if was_tried and (endpoint.status == FAILED or rolled_back):
                return DeployStep(Action.FAIL, f"endpoint {name}", endpoint.reason)
    base = present.components.get(name)
    if base is not None:
        made = {
            DeployStep(Action.CREATE_COMPONENT, name),
            DeployStep(Action.UPDATE_COMPONENT, name),
        }
        rolled_back = base.status == IN_SERVICE and _differs(deployment, base)
        if made.intersection(tried) and (base.status == FAILED or rolled_back):
            return DeployStep(Action.FAIL, f"component {name}", base.reason)
    failed = (_adapter_failure(it, present, tried) for it in deployment.adapters)
    return next((it for it in failed if it is not None), None)


def _adapter_failure(
    order: AdapterOrder, present: Present, tried: Collection[DeployStep]
) -> DeployStep | None:
    name = order.component
    found = present.components.get(name)
    made = {DeployStep(Action.CREATE_ADAPTER, name), DeployStep(Action.UPDATE_ADAPTER, name)}
    if found is None or not made.intersection(tried):
        return None
    if found.status == FAILED or (found.status == IN_SERVICE and found.uri != order.uri):
        return DeployStep(Action.FAIL, f"adapter {name}", found.reason)
    return None


def _list_waits(deployment: ModelDeployment, present: Present) -> Iterator[DeployStep]:
    """Waits for what is made, and not in service yet."""
    endpoint = present.endpoint
    if endpoint is not None and endpoint.status != IN_SERVICE:
        yield DeployStep(Action.WAIT, f"endpoint {deployment.name}")
    for name in (deployment.name, *(it.component for it in deployment.adapters)):
        found = present.components.get(name)
        if found is not None and found.status != IN_SERVICE:
            yield DeployStep(Action.WAIT, f"component {name}")
