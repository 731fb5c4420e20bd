"""The document for `hostelry apply` that deploys an option. PURE."""

from collections.abc import Mapping
from typing import Any

from hostelry.advisor.gates import PER_MODEL, get_serverless_memory_mb
from hostelry.advisor.options import HostingOption
from hostelry.advisor.plans import OptionPlan, get_scaling
from hostelry.advisor.policies import WAKE_NAME, build_scaling_document, build_wake_alarm
from hostelry.advisor.values import FitMix, FitModel
from hostelry.base.errors import TerminalError
from hostelry.domain.serverless import BYTES_PER_MB

Document = dict[str, Any]
NO_IMAGE = "fit.invalid/image"  # stands in for an image that the file leaves out


def build_document(plan: OptionPlan, mix: FitMix, group: str) -> Document:
    """The models, endpoints and components of an option. `group` names the endpoint that is shared.

    A batch has models alone: its jobs are calls of CreateTransformJob.
    """
    match plan.option:
        case HostingOption.COMPONENTS | HostingOption.ADAPTERS:
            found = _build_components(plan, group)
        case HostingOption.MULTI_MODEL:
            found = _build_multi_model(plan, group)
        case HostingOption.MULTI_CONTAINER:
            found = _build_multi_container(plan, group)
        case HostingOption.SERVERLESS:
            found = _build_serverless(plan, mix)
        case HostingOption.BATCH:
            found = {"models": {it.name: _container(it) for it in plan.models}}
        case HostingOption.DEDICATED | HostingOption.ASYNCHRONOUS:
            found = _build_dedicated(plan, mix)
    return {"set": mix.name, **found}


def count_objects(document: Mapping[str, Any]) -> int:
    """The objects of a document: each is a call that creates it.

    An endpoint also has a configuration, a scaling also has policies and scheduled actions.
    """
    endpoints = document.get("endpoints", {}).values()
    components = [it for one in endpoints for it in one.get("Components", {}).values()]
    variants = [it for one in endpoints for it in one.get("ProductionVariants", (one,))]
    adapters = sum(len(it.get("Adapters", {})) for it in components)
    scalings = [it["Scaling"] for it in (*components, *variants) if "Scaling" in it]
    policies = sum(len(it["Policies"]) + len(it.get("ScheduledActions", {})) for it in scalings)
    num_others = len(document.get("models", {})) + len(document.get("alarms", {}))
    return num_others + 2 * len(endpoints) + len(components) + adapters + len(scalings) + policies


def check_deployable(plan: OptionPlan) -> None:
    """Raise TerminalError if the file lacks what deploys the models."""
    for model in plan.models:
        for name in ("image", "artifact"):
            is_adapter = name == "image" and model.adapter_of is not None
            if not getattr(model, name) and not is_adapter:
                raise TerminalError(
                    f"model {model.name!r}: {name} is missing, and --write deploys it; "
                    "see `hostelry fit --example`"
                )
    if plan.option is HostingOption.MULTI_MODEL:
        find_prefix(plan)


def find_prefix(plan: OptionPlan) -> str:
    """The prefix of S3 below which all artifacts lie. Raises TerminalError if there are several."""
    artifacts = [it.artifact for it in plan.models]
    folders = {it.rpartition("/")[0] for it in artifacts}
    (folder, *others) = sorted(folders)
    if others or not folder.startswith("s3://"):
        raise TerminalError(
            f"a multi-model endpoint loads its models from one prefix of S3, and artifact has "
            f"{', '.join(sorted(folders)[:3])}; put the archives below one s3://bucket/prefix"
        )
    return f"{folder}/"


def _container(model: FitModel) -> Document:
    found: Document = {"Image": model.image or NO_IMAGE}
    if model.artifact:
        found["ModelDataUrl"] = model.artifact
    if model.environment:
        found["Environment"] = dict(model.environment)
    return found


def _build_dedicated(plan: OptionPlan, mix: FitMix) -> Document:
    endpoints: Document = {}
    for place, model in enumerate(plan.models):
        scaling = get_scaling(plan.option, plan, place)
        endpoints[model.name] = {
            "InstanceType": plan.machines[place].type,
            "ModelName": model.name,
            "InitialInstanceCount": max(1, scaling.minimum),
            "Scaling": build_scaling_document(scaling, model.name),
        }
        if plan.option is HostingOption.ASYNCHRONOUS:
            output = f"s3://{mix.name}-answers/{model.name}"
            endpoints[model.name]["AsyncInferenceConfig"] = {
                "OutputConfig": {"S3OutputPath": output},
                "ClientConfig": {
                    "MaxConcurrentInvocationsPerInstance": min(1000, int(scaling.target))
                },
            }
    assert plan.option in PER_MODEL, "other options share"
    found = {"models": {it.name: _container(it) for it in plan.models}, "endpoints": endpoints}
    if plan.option is HostingOption.ASYNCHRONOUS:
        found["alarms"] = {f"{it.name}-{WAKE_NAME}": _build_alarm(it) for it in plan.models}
    return found


def _build_alarm(model: FitModel) -> Document:
    alarm = build_wake_alarm(model.name)
    resource = f"endpoint/{model.name}/variant/AllTraffic"
    return {**alarm, "AlarmActions": [f"policy/{resource}/{WAKE_NAME}"]}


def _build_components(plan: OptionPlan, group: str) -> Document:
    components: Document = {}
    for place, model in enumerate(plan.models):
        if model.adapter_of is not None:
            continue
        needs: Document = {"MinMemoryRequiredInMb": round(model.memory_bytes / BYTES_PER_MB)}
        needs["NumberOfCpuCoresRequired"] = model.cpus
        if model.accelerators:
            needs["NumberOfAcceleratorDevicesRequired"] = model.accelerators
        container = _container(model)
        if "ModelDataUrl" in container:
            container["ArtifactUrl"] = container.pop("ModelDataUrl")
        components[model.name] = {
            **container,
            **needs,
            "SchedulingConfig": {"PlacementStrategy": "BINPACK"},
            "CopyCount": model.min_copies,
            "Scaling": build_scaling_document(get_scaling(plan.option, plan, place), group),
        }
        adapters = {it.name: it.artifact for it in plan.models if it.adapter_of == model.name}
        if adapters:
            components[model.name]["Adapters"] = adapters
    endpoint = {
        "InstanceType": plan.machine.type,
        "InitialInstanceCount": 1,
        "ManagedInstanceScaling": {
            "Status": "ENABLED", "MinInstanceCount": 1, "MaxInstanceCount": plan.machine.most,
        },
        "Components": components,
    }  # fmt: skip
    return {"endpoints": {group: endpoint}}


def _build_multi_model(plan: OptionPlan, group: str) -> Document:
    first = plan.models[0]
    is_complete = all(it.artifact for it in plan.models)
    container = {
        **_container(first),
        "Mode": "MultiModel",
        "ModelDataUrl": find_prefix(plan) if is_complete else "s3://models/",
    }
    return {"models": {group: container}, "endpoints": {group: _shared_endpoint(plan, group)}}


def _build_multi_container(plan: OptionPlan, group: str) -> Document:
    containers = [{"ContainerHostname": it.name, **_container(it)} for it in plan.models]
    model = {"Containers": containers, "InferenceExecutionConfig": {"Mode": "Direct"}}
    return {"models": {group: model}, "endpoints": {group: _shared_endpoint(plan, group)}}


def _shared_endpoint(plan: OptionPlan, group: str) -> Document:
    scaling = get_scaling(plan.option, plan, 0)
    return {
        "InstanceType": plan.machine.type,
        "ModelName": group,
        "InitialInstanceCount": scaling.minimum,
        "Scaling": build_scaling_document(scaling, group),
    }


def _build_serverless(plan: OptionPlan, mix: FitMix) -> Document:
    return {
        "models": {it.name: _container(it) for it in plan.models},
        "endpoints": {
            model.name: {
                "ModelName": model.name,
                "ServerlessConfig": {
                    "MemorySizeInMB": get_serverless_memory_mb(model),
                    "MaxConcurrency": mix.serverless_concurrency,
                },
            }
            for model in plan.models
        },
    }
