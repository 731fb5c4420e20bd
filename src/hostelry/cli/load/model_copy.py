"""Copies of a deployed model with other settings, on endpoints that exist for a sweep alone.

A copy's resources all have the same name. The tags of its model and its endpoint configuration say
which home made it, so the next sweep removes a copy that a killed sweep left.
"""

import fcntl
import hashlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.cli.control_requests import control_answer
from hostelry.cli.load.sweep import ENV, SweptValue
from hostelry.cli.models.removal import Removal
from hostelry.cli.models.rm import Remover
from hostelry.cli.models.scale import wait_for_copies
from hostelry.cli.named import NamedModel, NameKind, api_errors, describe, list_rows, patient_client
from hostelry.home.home import Credentials, Home, UpConfig

MARK = "-load-sweep-"
TAG = "hostelry:load-sweep"
MAX_NAME_START = 40  # characters of the model's own name in a copy's name
WAIT_S = 3600.0  # the platform ends a start that fails long before
LOOK_EVERY_S = 0.25
KEPT_OF_MODEL = ("ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation")
KEPT_OF_CONFIG = ("ExecutionRoleArn", "VpcConfig", "EnableNetworkIsolation", "KmsKeyId")
KINDS = ("inference_component", "endpoint", "endpoint_config", "model")
Call = tuple[str, dict[str, Any]]


class DescribedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is copied, as the API describes it.

    Args:
        container: the fields that create it, including `Environment`.
        config: the endpoint's configuration, with the model's variant alone.
        model: the model that has the container. None if the component has it.
        component: None if the endpoint has no components.
    """

    name: str
    container: Mapping[str, Any]
    config: Mapping[str, Any]
    model: Mapping[str, Any] | None
    component: Mapping[str, Any] | None


def describe_model(sagemaker: Any, named: NamedModel) -> DescribedModel:
    """Describe the model for a copy. Raises TerminalError if a sweep cannot copy it."""
    name = named.component or named.endpoint
    if named.kind is NameKind.ADAPTER:
        base = named.base or named.component
        raise TerminalError(f"{name} is an adapter, and a sweep deploys whole models: name {base}")
    endpoint = sagemaker.describe_endpoint(EndpointName=named.endpoint)
    config = sagemaker.describe_endpoint_config(EndpointConfigName=endpoint["EndpointConfigName"])
    if config.get("AsyncInferenceConfig"):
        raise TerminalError(f"endpoint {named.endpoint} is asynchronous: a sweep cannot copy it")
    component = None
    if named.component is not None:
        component = sagemaker.describe_inference_component(InferenceComponentName=named.component)
        own = component.get("VariantName")
        every = config["ProductionVariants"]
        variants = [it for it in every if own in (None, it["VariantName"])]
        config = {**config, "ProductionVariants": variants}
    if len(config["ProductionVariants"]) != 1:
        raise TerminalError(f"endpoint {named.endpoint} has several variants: a sweep copies one")
    given = component or {}
    owner = config["ProductionVariants"][0] if not given else given.get("Specification", {})
    model = None
    if "ModelName" in owner:
        model = sagemaker.describe_model(ModelName=owner["ModelName"])
        container = model.get("PrimaryContainer")
    else:
        container = component_container(owner.get("Container"))
    if not container:
        raise TerminalError(f"{name} has several containers: a sweep copies a single one")
    return DescribedModel(
        name=name, container=container, config=config, model=model, component=component
    )


def component_container(described: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The container that creates a component, from its description."""
    if not described:
        return None
    kept = {it: described[it] for it in ("ArtifactUrl", "Environment") if it in described}
    return {**kept, "Image": described["DeployedImage"]["SpecifiedImage"]}


def list_calls(
    described: DescribedModel, name: str, tag: str, values: Mapping[str, SweptValue]
) -> list[Call]:
    """The calls that create a copy with these values, in their order.

    Raises TerminalError if the model does not have a setting.
    """
    variables = {
        key.removeprefix(ENV): str(value) for key, value in values.items() if key.startswith(ENV)
    }
    environment = {**described.container.get("Environment", {}), **variables}
    container = {**described.container, "Environment": environment}
    variant, tags = build_variant(described, name, values), [{"Key": TAG, "Value": tag}]
    calls: list[Call] = []
    if described.model is not None:
        kept = {it: described.model[it] for it in KEPT_OF_MODEL if it in described.model}
        model = {**kept, "ModelName": name, "PrimaryContainer": container, "Tags": tags}
        calls.append(("create_model", model))
    kept = {it: described.config[it] for it in KEPT_OF_CONFIG if it in described.config}
    config = {**kept, "EndpointConfigName": name, "ProductionVariants": [variant], "Tags": tags}
    calls.append(("create_endpoint_config", config))
    calls.append(("create_endpoint", {"EndpointName": name, "EndpointConfigName": name}))
    if described.component is not None:
        own = {"Container": container} if described.model is None else {"ModelName": name}
        component = {
            "InferenceComponentName": name,
            "EndpointName": name,
            "VariantName": variant["VariantName"],
            "Specification": {**own, **build_specification(described.component, values)},
            "RuntimeConfig": {"CopyCount": values.get("copies", 1)},
        }
        calls.append(("create_inference_component", component))
    return calls


def build_variant(
    described: DescribedModel, name: str, values: Mapping[str, SweptValue]
) -> dict[str, Any]:
    """The variant of a copy's endpoint."""
    variant = dict(described.config["ProductionVariants"][0])
    copies = values.get("copies")
    if "instance-type" in values:
        variant["InstanceType"] = values["instance-type"]
    if described.component is not None:
        scaling = variant.get("ManagedInstanceScaling") or {}
        room = max(int(copies or 1), scaling.get("MaxInstanceCount", 1))
        bounds = {"Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": room}
        return {**variant, "InitialInstanceCount": 1, "ManagedInstanceScaling": bounds}
    for key in ("cpus", "memory-mb"):
        if key in values:
            raise TerminalError(
                f"--sweep {key}: {described.name} is an endpoint without components, whose copies "
                "have a whole instance. Sweep instance-type"
            )
    if variant.get("ServerlessConfig") and values.keys() & {"copies", "instance-type"}:
        raise TerminalError(f"{described.name} is serverless: it has no copies and instance-type")
    if copies is not None:
        variant["InitialInstanceCount"] = copies
        variant.pop("ManagedInstanceScaling", None)
    return {**variant, "ModelName": name}


def build_specification(
    component: Mapping[str, Any], values: Mapping[str, SweptValue]
) -> dict[str, Any]:
    """The fields of a component's Specification that do not name its container."""
    described = component["Specification"]
    compute = dict(described.get("ComputeResourceRequirements", {}))
    for key, member in (
        ("cpus", "NumberOfCpuCoresRequired"),
        ("memory-mb", "MinMemoryRequiredInMb"),
    ):
        if key in values:
            compute[member] = values[key]
    kept = {it: described[it] for it in ("StartupParameters",) if it in described}
    return {**kept, "ComputeResourceRequirements": compute}


class ModelCopies:
    """Deploys copies of a model, each after the last one was removed.

    `get_left_out(endpoint)` returns the variables that its model servers do not get.
    """

    def __init__(
        self,
        sagemaker: Any,
        config: UpConfig,
        named: NamedModel,
        tag: str,
        get_left_out: Callable[[str], Set[str]],
    ) -> None:
        self._sagemaker = sagemaker
        self._config = config
        self._described = describe_model(sagemaker, named)
        self._tag = tag
        self._get_left_out = get_left_out
        self._name: str | None = None

    def check(self, values: Mapping[str, SweptValue]) -> None:
        """Raise TerminalError if no copy can have these values."""
        list_calls(self._described, "x", self._tag, values)

    def deploy(self, values: Mapping[str, SweptValue]) -> NamedModel:
        """Deploy a copy, and wait until it answers. Raises TerminalError."""
        start = self._described.name[:MAX_NAME_START].rstrip("-")
        name = f"{start}{MARK}{secrets.token_hex(3)}"
        self._name = name
        report(f"deploy {name}")
        with api_errors(self._config):
            for call, params in list_calls(self._described, name, self._tag, values):
                getattr(self._sagemaker, call)(**params)
                if call == "create_endpoint":
                    wait_for_endpoint(self._sagemaker, name)
            named = NamedModel(kind=NameKind.ENDPOINT, endpoint=name)
            if self._described.component is not None:
                named = NamedModel(kind=NameKind.COMPONENT, endpoint=name, component=name)
                copies = int(values.get("copies", 1))
                wait_for_copies(self._sagemaker, named, None, (copies, copies), WAIT_S)
        left_out = {f"{ENV}{it}" for it in self._get_left_out(name)} & values.keys()
        if left_out:
            raise TerminalError(
                f"the model server does not get {', '.join(sorted(left_out))}: docs/fleet.md names "
                "the variables that are passed on"
            )
        return named

    def remove(self) -> None:
        """Remove the copy, if there is one. A failure is reported: the next sweep removes it."""
        name, self._name = self._name, None
        if name is None:
            return
        try:
            with api_errors(self._config):
                remove_copy(self._sagemaker, name)
        except TerminalError as error:
            report(f"hostelry: {error}. The next sweep, or `hostelry rm {name}`, removes it")


def find_left_out(running: tuple[UpConfig, Credentials], endpoint: str) -> Set[str]:
    """The variables that the endpoint's model servers do not get. Raises TerminalError."""
    state = control_answer(*running, "/internal/state", knows="the variables of copies")
    endpoints = [it for it in state["endpoints"] if it["name"] == endpoint]
    copies = [copy for it in endpoints for copy in it["copies"]]
    return {name for copy in copies for name in copy.get("variables_left_out", ())}


def wait_for_endpoint(sagemaker: Any, name: str) -> None:
    """Wait until the endpoint is in service. Raises TerminalError with the reason if it fails."""
    began_s = monotonic_s()
    while (shown := sagemaker.describe_endpoint(EndpointName=name))["EndpointStatus"] == "Creating":
        if monotonic_s() - began_s >= WAIT_S:
            raise TerminalError(f"endpoint {name} is not in service after {WAIT_S:g} s")
        time.sleep(LOOK_EVERY_S)
    if shown["EndpointStatus"] != "InService":
        reason = shown.get("FailureReason", shown["EndpointStatus"])
        raise TerminalError(f"endpoint {name} failed: {reason}")


def remove_copy(sagemaker: Any, name: str) -> None:
    """Remove the resources of a copy, and wait until they are gone. Raises TerminalError."""
    there = {kind: (name,) for kind in KINDS if describe(sagemaker, kind, name) is not None}
    removal = Removal(
        components=there.get("inference_component", ()),
        endpoints=there.get("endpoint", ()),
        configs=there.get("endpoint_config", ()),
        models=there.get("model", ()),
    )
    Remover(sagemaker, None, None).remove(removal)


def left_copies(sagemaker: Any, tag: str) -> list[str]:
    """The names of copies that sweeps of this home left."""
    found: dict[str, None] = {}
    for call, member, kind in (
        ("list_models", "Models", "Model"),
        ("list_endpoint_configs", "EndpointConfigs", "EndpointConfig"),
    ):
        for row in list_rows(sagemaker, call, member, NameContains=MARK):
            tags = sagemaker.list_tags(ResourceArn=row[f"{kind}Arn"])["Tags"]
            if {"Key": TAG, "Value": tag} in tags:
                found[row[f"{kind}Name"]] = None
    return list(found)


def home_tag(home: Home) -> str:
    """The tag's value: it names this home on this machine."""
    place = f"{socket.gethostname()}:{home.root}"
    return hashlib.sha256(place.encode()).hexdigest()[:16]


@contextmanager
def model_copies(
    home: Home, running: tuple[UpConfig, Credentials], named: NamedModel
) -> Iterator[ModelCopies]:
    """Copies of the model during the block, after copies that a killed sweep left are removed.

    Raises TerminalError if another sweep of this home has copies.
    """
    sagemaker = patient_client("sagemaker", *running)
    home.run.mkdir(mode=0o700, exist_ok=True)
    with (home.run / "load-sweep.lock").open("a") as file, api_errors(running[0]):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TerminalError(
                "another `hostelry load --sweep` deploys models now: run this one after it"
            ) from None
        tag = home_tag(home)
        for name in left_copies(sagemaker, tag):
            report(f"remove {name}, which a sweep left")
            remove_copy(sagemaker, name)
        get_left_out = partial(find_left_out, running)
        copies = ModelCopies(sagemaker, running[0], named, tag, get_left_out)
        try:
            yield copies
        finally:
            copies.remove()


def report(line: str) -> None:
    """Print a line of progress to standard error."""
    typer.echo(line, err=True)
