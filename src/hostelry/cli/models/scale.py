"""`hostelry scale`: set a model's number of copies, or bounds for it."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import one_line
from hostelry.cli import completion as names
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.named import NamedModel, NameKind, api_errors, called_model, patient_client

LOOK_EVERY_S = 0.5
POLICY_NAME = "hostelry-scale"
DEFAULT_TARGET = 5.0  # concurrent requests per copy
STUCK_AFTER_S = 15.0  # without a change, while the platform reports a lack of room
SERVICE = {"ServiceNamespace": "sagemaker"}


def scale(  # noqa: PLR0913 - a command's options
    name: Annotated[
        str, typer.Argument(help="Component or endpoint.", autocompletion=names.served)
    ],
    copies: Annotated[
        int | None, typer.Option(min=0, help="Number of copies (instances for a model endpoint).")
    ] = None,
    least: Annotated[
        int | None, typer.Option("--min", min=0, help="Minimum number of copies.")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", min=1, help="Maximum number of copies.")
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            help=f"Target number of concurrent requests per copy. Default: {DEFAULT_TARGET:g}.",
        ),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option(help="Variant to scale, if the endpoint has several.", show_default=False),
    ] = None,
    wait_s: Annotated[
        float, typer.Option("--wait", min=0.0, help="Maximum number of seconds to wait.")
    ] = 600.0,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the number of copies, or bounds for automatic scaling, and wait for the copies.

    With bounds it registers a scalable target with a target-tracking policy on concurrent requests.

    Exit code 1 if there is not enough room (the output says what fits), or the copies are not ready
    in time.

    Example: hostelry scale llama --copies 2

    Example: hostelry scale llama --min 0 --max 4 --target 8
    """
    change = CapacityChange(copies=copies, least=least, most=most, target=target)
    config, credentials = load_home(home_at(home))
    sagemaker = patient_client("sagemaker", config, credentials)
    scaling = patient_client("application-autoscaling", config, credentials)
    with api_errors(config):
        model = called_model(sagemaker, name)
        if model.kind is NameKind.ADAPTER:
            raise TerminalError(
                f"{name} is an adapter, which is on every copy of its base: scale "
                f"{model.base or model.component}"
            )
        if model.component is None:
            variant = chosen_variant(sagemaker, model.endpoint, variant)
        if copies is not None:
            note_bounds(scaling, model, variant, copies)
            set_copies(sagemaker, model, variant, copies)
            within = (copies, copies)
        else:
            within = set_bounds(scaling, model, variant, change)
        seen = wait_for_copies(sagemaker, model, variant, within, wait_s)
    if as_json:
        document = {"name": name, "ready": seen.ready, "desired": seen.desired}
        print_json({**document, "status": seen.status})
    else:
        typer.echo(f"{name}: {seen.text()}")


def chosen_variant(sagemaker: Any, endpoint: str, variant: str | None) -> str:
    """The variant to scale. Raises TerminalError if it is ambiguous or does not exist."""
    shown = sagemaker.describe_endpoint(EndpointName=endpoint)
    found = [it["VariantName"] for it in shown.get("ProductionVariants", ())]
    if variant is None and len(found) == 1:
        return str(found[0])
    if variant is None or variant not in found:
        raise UsageError(f"give --variant: endpoint {endpoint} has {', '.join(found) or 'none'}")
    return variant


def set_copies(sagemaker: Any, model: NamedModel, variant: str | None, copies: int) -> None:
    """Set the desired number of copies or instances."""
    if model.component is not None:
        sagemaker.update_inference_component_runtime_config(
            InferenceComponentName=model.component, DesiredRuntimeConfig={"CopyCount": copies}
        )
        return
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName=model.endpoint,
        DesiredWeightsAndCapacities=[{"VariantName": variant, "DesiredInstanceCount": copies}],
    )


def note_bounds(scaling: Any, model: NamedModel, variant: str | None, copies: int) -> None:
    """Print a note if a scalable target will change the number again."""
    known = find_target(scaling, scalable_id(model, variant))
    if known is not None and not known["MinCapacity"] <= copies <= known["MaxCapacity"]:
        typer.echo(
            f"Its scalable target has {known['MinCapacity']} to {known['MaxCapacity']} copies, and "
            f"will leave {copies} again.",
            err=True,
        )


class CapacityChange(msgspec.Struct, frozen=True, kw_only=True):
    """A number of copies, or bounds with a target load per copy."""

    copies: int | None = None
    least: int | None = None
    most: int | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        """Raise TerminalError if the options contradict each other, or none is given."""
        bounds = (self.least, self.most, self.target)
        if self.copies is None and bounds == (None, None, None):
            raise UsageError("give --copies N, or --min A and --max B")
        if self.copies is not None and bounds != (None, None, None):
            raise UsageError("--copies is a number, --min, --max and --target are bounds: give one")
        if self.least is not None and self.most is not None and self.least > self.most:
            raise UsageError(f"--min {self.least} is more than --max {self.most}")


def set_bounds(
    scaling: Any, model: NamedModel, variant: str | None, change: CapacityChange
) -> tuple[int, int]:
    """Register the bounds, with a policy if one is requested or missing. Returns the bounds."""
    target_id = scalable_id(model, variant)
    within = bounds(change, find_target(scaling, target_id))
    scaling.register_scalable_target(**target_id, **within)
    policies = scaling.describe_scaling_policies(**target_id)["ScalingPolicies"]
    if change.target is not None or not policies:
        target = DEFAULT_TARGET if change.target is None else change.target
        scaling.put_scaling_policy(**tracking_policy(target_id, target))
        typer.echo(f"Copies follow the load: {target:g} requests under way on each.", err=True)
    return within["MinCapacity"], within["MaxCapacity"]


def find_target(scaling: Any, target_id: dict[str, str]) -> dict[str, Any] | None:
    """The scalable target, or None."""
    found = scaling.describe_scalable_targets(
        **SERVICE,
        ResourceIds=[target_id["ResourceId"]],
        ScalableDimension=target_id["ScalableDimension"],
    )["ScalableTargets"]
    return found[0] if found else None


class SeenCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """A model's described copies. For an endpoint, these are instances."""

    ready: int
    desired: int
    status: str
    note: str | None = None

    def text(self) -> str:
        """The state on one line."""
        return f"{self.ready} of {self.desired} ready, {self.status}"


def wait_for_copies(
    sagemaker: Any,
    model: NamedModel,
    variant: str | None,
    within: tuple[int, int],
    wait_s: float,
) -> SeenCapacity:
    """Wait for the copies and return the state. Raises TerminalError if waiting is useless."""
    began_s = changed_s = monotonic_s()
    last: SeenCapacity | None = None
    while True:
        seen, now_s = seen_capacity(sagemaker, model, variant), monotonic_s()
        if seen != last:
            if last is not None:
                changed_s = now_s
            typer.echo(f"{now_s - began_s:5.1f} s  {seen.text()}", err=True)
            if seen.note and (last is None or seen.note != last.note):
                typer.echo(f"         {one_line(seen.note)}", err=True)
            last = seen
        if is_there(seen, *within):
            return seen
        if why := trouble(seen, now_s - changed_s):
            raise TerminalError(why)
        if now_s - began_s >= wait_s:
            raise TerminalError(f"after {wait_s:g} s {seen.text()}; `hostelry ls` shows it")
        time.sleep(LOOK_EVERY_S)


def seen_capacity(sagemaker: Any, model: NamedModel, variant: str | None) -> SeenCapacity:
    """The model's present copies."""
    if model.component is not None:
        shown = sagemaker.describe_inference_component(InferenceComponentName=model.component)
        runtime = shown.get("RuntimeConfig", {})
        return SeenCapacity(
            ready=runtime.get("CurrentCopyCount", 0),
            desired=runtime.get("DesiredCopyCount", 0),
            status=shown["InferenceComponentStatus"],
            note=shown.get("FailureReason"),
        )
    shown = sagemaker.describe_endpoint(EndpointName=model.endpoint)
    variants = shown.get("ProductionVariants", ())
    one: dict[str, Any] = next((it for it in variants if it["VariantName"] == variant), {})
    return SeenCapacity(
        ready=one.get("CurrentInstanceCount", 0),
        desired=one.get("DesiredInstanceCount", 0),
        status=shown["EndpointStatus"],
        note=shown.get("FailureReason"),
    )


def scalable_id(model: NamedModel, variant: str | None) -> dict[str, str]:
    """The scalable target of a component, or of an endpoint's variant."""
    if model.component is not None:
        return target_id(f"inference-component/{model.component}")
    return target_id(f"endpoint/{model.endpoint}/variant/{variant}")


def target_id(resource_id: str) -> dict[str, str]:
    """The members that name the scalable target of a resource in calls."""
    is_component = resource_id.startswith("inference-component/")
    scaled = (
        "inference-component:DesiredCopyCount" if is_component else "variant:DesiredInstanceCount"
    )
    return {**SERVICE, "ResourceId": resource_id, "ScalableDimension": f"sagemaker:{scaled}"}


def bounds(change: CapacityChange, registered: Mapping[str, Any] | None) -> dict[str, int]:
    """The bounds to register. Missing bounds keep their value. Raises TerminalError without any."""
    known = registered or {}
    least = known.get("MinCapacity") if change.least is None else change.least
    most = known.get("MaxCapacity") if change.most is None else change.most
    if least is None or most is None:
        raise TerminalError("nothing scales it yet: give --min and --max")
    if least > most:
        raise TerminalError(f"the bounds would be {least} to {most}: give both --min and --max")
    return {"MinCapacity": least, "MaxCapacity": most}


def tracking_policy(
    scaled: Mapping[str, str], target: float, name: str = POLICY_NAME
) -> dict[str, Any]:
    """A PutScalingPolicy request for a number of concurrent requests per copy or instance."""
    metric = (
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
        if scaled["ResourceId"].startswith("inference-component/")
        else "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    )
    return {
        **scaled,
        "PolicyName": name,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": target,
            "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
        },
    }


def is_there(seen: SeenCapacity, least: int, most: int) -> bool:
    """True if the number of copies is reached and no further copy is starting."""
    settled = seen.status == "InService" and seen.ready == seen.desired
    return settled and least <= seen.ready <= most


def trouble(seen: SeenCapacity, unchanged_s: float) -> str | None:
    """Why waiting is useless. None if waiting makes sense."""
    if seen.status == "Failed":
        return seen.note or "it is Failed"
    if seen.note and unchanged_s >= STUCK_AFTER_S:
        fits = f"{seen.ready} of {seen.desired} fit and are ready"
        return f"{fits}; the rest waits for room, and starts once there is: {seen.note}"
    return None
