"""Acts of the console: the sentence to confirm, and the calls that do the act. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.console.platform import ApiQuery, ProcessCommand

MAX_COPIES = 1000
MAX_NAME_CHARACTERS = 200
Arguments = Mapping[str, Any]


class ActRefusedError(HostelryError):
    """The arguments are invalid for the act."""


class ActPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan to confirm: a sentence, a warning, and the calls in order.

    `act` and `endpoint` are for the audit log.
    """

    act: str
    sentence: str
    endpoint: str = ""
    warning: str = ""
    calls: tuple[ApiQuery | ProcessCommand, ...]


def text(arguments: Arguments, name: str) -> str:
    """Read a name from the arguments. Raises ActRefusedError."""
    value = arguments.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME_CHARACTERS:
        raise ActRefusedError(f"{name}: expected a name of 1 to {MAX_NAME_CHARACTERS} characters")
    return value


def count(arguments: Arguments, name: str) -> int:
    """Read a number of copies or instances from the arguments. Raises ActRefusedError."""
    value = arguments.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COPIES:
        raise ActRefusedError(f"{name} {value!r:.20}: expected a whole number, 0 to {MAX_COPIES}")
    return value


def get_endpoint(arguments: Arguments) -> str:
    """Read the endpoint for the audit log. Empty if the page does not name it."""
    value = arguments.get("endpoint", "")
    return value if isinstance(value, str) and len(value) <= MAX_NAME_CHARACTERS else ""


def scale_component(arguments: Arguments) -> ActPlan:
    """Plan to change the number of copies of an inference component."""
    name, copies = text(arguments, "component"), count(arguments, "copies")
    parameters = {
        "InferenceComponentName": name,
        "DesiredRuntimeConfig": {"CopyCount": copies},
    }
    return ActPlan(
        act="scale",
        endpoint=get_endpoint(arguments),
        sentence=f"Set the copies of inference component {name} to {copies}.",
        warning="Without a copy, requests wait or fail until one is started." if not copies else "",
        calls=(
            ApiQuery(
                service="sagemaker",
                operation="UpdateInferenceComponentRuntimeConfig",
                parameters=parameters,
            ),
        ),
    )


def scale_variant(arguments: Arguments) -> ActPlan:
    """Plan to change the number of instances of an endpoint's variant."""
    endpoint, variant = text(arguments, "endpoint"), text(arguments, "variant")
    instances = count(arguments, "instances")
    change = {"VariantName": variant, "DesiredInstanceCount": instances}
    return ActPlan(
        act="scale",
        endpoint=endpoint,
        sentence=f"Set the instances of variant {variant} of endpoint {endpoint} to {instances}.",
        calls=(
            ApiQuery(
                service="sagemaker",
                operation="UpdateEndpointWeightsAndCapacities",
                parameters={"EndpointName": endpoint, "DesiredWeightsAndCapacities": [change]},
            ),
        ),
    )


def delete_component(arguments: Arguments) -> ActPlan:
    """Plan to delete an inference component."""
    name = text(arguments, "component")
    return ActPlan(
        act="delete",
        endpoint=get_endpoint(arguments),
        sentence=f"Delete inference component {name}, with all its copies.",
        warning="Its requests fail from then on. This cannot be undone.",
        calls=(
            ApiQuery(
                service="sagemaker",
                operation="DeleteInferenceComponent",
                parameters={"InferenceComponentName": name},
            ),
        ),
    )


def delete_endpoint(arguments: Arguments) -> ActPlan:
    """Plan to delete an endpoint."""
    name = text(arguments, "endpoint")
    return ActPlan(
        act="delete",
        endpoint=name,
        sentence=f"Delete endpoint {name}, with its instances and copies.",
        warning="Its requests fail from then on. Models and configurations stay.",
        calls=(
            ApiQuery(
                service="sagemaker",
                operation="DeleteEndpoint",
                parameters={"EndpointName": name},
            ),
        ),
    )


def restart(arguments: Arguments) -> ActPlan:
    """Plan to replace one copy, or all copies of a component, by new copies."""
    kind = "copy" if "copy" in arguments else "component"
    name = text(arguments, kind)
    noun = "copy" if kind == "copy" else "every copy of inference component"
    return ActPlan(
        act="restart",
        endpoint=get_endpoint(arguments),
        sentence=f"Replace {noun} {name} by a new one.",
        calls=(control_act("restart", arguments, {kind: name}),),
    )


def drain(arguments: Arguments) -> ActPlan:
    """Plan to end an instance once another has taken its place."""
    name = text(arguments, "instance")
    return ActPlan(
        act="drain",
        endpoint=get_endpoint(arguments),
        sentence=f"Drain instance {name}: another takes its place, then it ends.",
        calls=(control_act("drain", arguments, {"instance": name}),),
    )


def undrain(arguments: Arguments) -> ActPlan:
    """Plan to keep an instance that is being drained."""
    name = text(arguments, "instance")
    return ActPlan(
        act="undrain",
        endpoint=get_endpoint(arguments),
        sentence=f"Have copies placed on instance {name} again.",
        calls=(control_act("undrain", arguments, {"instance": name}),),
    )


def control_act(name: str, arguments: Arguments, what: Mapping[str, str]) -> ProcessCommand:
    """Build the command for an act of control, in the scope that the page names."""
    scope = {key: text(arguments, key) for key in ("account", "region")}
    return ProcessCommand(process="control", path=f"/internal/acts/{name}", body={**scope, **what})


ACTS: Mapping[str, Callable[[Arguments], ActPlan]] = {
    "scale-component": scale_component,
    "scale-variant": scale_variant,
    "delete-component": delete_component,
    "delete-endpoint": delete_endpoint,
    "restart": restart,
    "drain": drain,
    "undrain": undrain,
}


def act_plan(name: str, arguments: Any) -> ActPlan:
    """Plan an act. Raises ActRefusedError for an unknown act or invalid arguments."""
    if name not in ACTS:
        raise ActRefusedError(f"{name:.50}: expected one of {', '.join(ACTS)}")
    if not isinstance(arguments, dict):
        raise ActRefusedError("expected an object of arguments")
    return ACTS[name](arguments)
