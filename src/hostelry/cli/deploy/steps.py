"""The resources of a deployment, and the texts of the steps that create them. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.files import ObjectOrder
from hostelry.cli.declared.expansion import WantedState
from hostelry.cli.declared.forms import config_form, get_base, model_form, models_in, to_form
from hostelry.cli.declared.local_artifacts import ArtifactUploads
from hostelry.cli.declared.observation import ObservedState
from hostelry.cli.declared.resource import (
    ApplyStep,
    Params,
    ResourceKey,
    ResourceKind,
    SourcePlace,
    UploadedFile,
    Wanted,
    target_key,
)
from hostelry.cli.deploy.plan import VARIANT, ModelDeployment
from hostelry.cli.models.scale import target_id, tracking_policy

POLICY = "hostelry-deploy"
DEPLOYED_TAG = "hostelry:deployed"  # a model's tag, with the name that it was deployed under
BYTES_PER_MB = 1024 * 1024
CREATE, UPDATE = "CreateInferenceComponent", "UpdateInferenceComponent"
# Texts of steps by operation, in the order of display.
TEXTS: Mapping[str, str] = {
    "CreateEndpointConfig": "create endpoint config",
    "DeleteEndpoint": "delete the failed endpoint",
    "CreateEndpoint": "create endpoint",
    "UpdateEndpoint": "update endpoint",
    "UpdateEndpointWeightsAndCapacities": "update endpoint",
    "": "upload to",
    "CreateModel": "create model",
    "DeleteInferenceComponent": "delete the failed component",
    CREATE: "create inference component",
    UPDATE: "update inference component",
    "UpdateInferenceComponentRuntimeConfig": "set the copies of",
    "RegisterScalableTarget": "scale",
    "PutScalingPolicy": "scale",
}
ORDER = list(TEXTS)


def component_key(name: str) -> ResourceKey:
    """The key of a component or an adapter."""
    return ResourceKey(ResourceKind.COMPONENT, name)


def build_wanted_state(deployment: ModelDeployment, role_arn: str) -> WantedState:
    """The resources of a deployment. No set of documents owns them."""
    wanted = [
        Wanted(
            key=key,
            params=params,
            place=SourcePlace("deploy", 0),
            tags=tags,
            only_created=key.kind in (ResourceKind.MODEL, ResourceKind.POLICY),
        )
        for key, params, tags in list_resources(deployment)
    ]
    return WantedState(
        owner="",
        role_arn=role_arn,
        resources={it.key: it for it in wanted},
        config_names={deployment.name: deployment.config.name},
    )


def list_resources(
    deployment: ModelDeployment,
) -> Iterator[tuple[ResourceKey, Params, Mapping[str, str] | None]]:
    """Key, params and tags of each resource."""
    name = deployment.name
    tags = {DEPLOYED_TAG: name}
    yield ResourceKey(ResourceKind.MODEL, deployment.model.name), model_params(deployment), tags
    variant = variant_params(deployment)
    config = config_form({"ProductionVariants": [variant]})
    yield ResourceKey(ResourceKind.ENDPOINT, name), {"Config": config}, None
    base = {
        "EndpointName": name,
        "VariantName": VARIANT,
        "Specification": specification(deployment),
        "CopyCount": deployment.copies,
    }
    yield component_key(name), to_form(base), None
    for adapter in deployment.adapters:
        params = {
            "EndpointName": name,
            "Specification": {
                "BaseInferenceComponentName": name,
                "Container": {"ArtifactUrl": adapter.uri},
            },
        }
        yield component_key(adapter.component), params, None
    scaling = deployment.scaling
    if scaling is not None:
        scaled = target_id(f"inference-component/{name}")
        target = target_key(scaled["ResourceId"], scaled["ScalableDimension"])
        bounds = {"MinCapacity": scaling.min_copies, "MaxCapacity": scaling.max_copies}
        yield target, bounds, None
        request = tracking_policy(scaled, scaling.target, POLICY)
        policy = {it: request[it] for it in request if it not in scaled and it != "PolicyName"}
        yield ResourceKey(ResourceKind.POLICY, POLICY, target.name), to_form(policy), None


def model_params(deployment: ModelDeployment) -> dict[str, Any]:
    """CreateModel's fields."""
    model = deployment.model
    container: dict[str, Any] = {"Image": model.image, "Environment": dict(model.environment)}
    if model.is_archive:
        container["ModelDataUrl"] = model.uri
    elif model.uri:
        source = {"S3Uri": model.uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
        container["ModelDataSource"] = {"S3DataSource": source}
    return model_form({"PrimaryContainer": container})


def variant_params(deployment: ModelDeployment) -> dict[str, Any]:
    """The endpoint's variant, which hosts inference components."""
    config = deployment.config
    return {
        "VariantName": VARIANT,
        "InstanceType": config.instance_type,
        "InitialInstanceCount": config.initial_instances,
        "ManagedInstanceScaling": {
            "Status": "ENABLED",
            "MinInstanceCount": config.min_instances,
            "MaxInstanceCount": config.max_instances,
        },
        "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
    }


def specification(deployment: ModelDeployment) -> dict[str, Any]:
    """The component's Specification."""
    asked = deployment.requirements
    compute: dict[str, Any] = {
        "NumberOfCpuCoresRequired": asked.cpus,
        "MinMemoryRequiredInMb": asked.min_memory_bytes // BYTES_PER_MB,
    }
    if asked.accelerators:
        compute["NumberOfAcceleratorDevicesRequired"] = asked.accelerators
    return {"ModelName": deployment.model.name, "ComputeResourceRequirements": compute}


def check_free(deployment: ModelDeployment, observed: ObservedState) -> None:
    """Raise TerminalError if other resources already have the names."""
    name = deployment.name
    endpoint = observed.resources.get(ResourceKey(ResourceKind.ENDPOINT, name))
    if endpoint is not None:
        variants = endpoint.params["Config"].get("ProductionVariants", [{}])
        names = [it.get("VariantName", VARIANT) for it in variants]
        if models_in(variants) or names != [VARIANT]:
            raise TerminalError(
                f"there is an endpoint {name} with models of its own, which deploy does not "
                "change: choose another --name, or delete it"
            )
    for component in (name, *(it.component for it in deployment.adapters)):
        found = observed.resources.get(component_key(component))
        if found is not None and found.params["EndpointName"] != name:
            raise TerminalError(
                f"there is an inference component {component} on endpoint "
                f"{found.params['EndpointName']}: choose another --name, or delete it"
            )


def missing_objects(deployment: ModelDeployment, present: frozenset[str]) -> list[ObjectOrder]:
    """The objects that are missing. `present` has the keys of existing objects."""
    return [it for it in deployment.objects if it.key not in present]


def build_uploads(deployment: ModelDeployment, missing: Sequence[ObjectOrder]) -> ArtifactUploads:
    """One upload of all missing objects. The model and the packed adapters need it."""
    if not missing:
        return ArtifactUploads()
    upload = UploadedFile(upload_place(deployment, missing), deployment.bucket, tuple(missing))
    uris = (deployment.model.uri, *(it.uri for it in deployment.adapters))
    return ArtifactUploads({uri: [upload] for uri in uris if uri})


def upload_place(deployment: ModelDeployment, missing: Sequence[ObjectOrder]) -> str:
    """The object or prefix that is shown as the target of an upload."""
    folders = {it.key.rpartition("/")[0] for it in missing}
    place = missing[0].key if len(missing) == 1 else min(folders)
    place = place if len(folders) == 1 else place.partition("/")[0]
    return f"s3://{deployment.bucket}/{place}"


def step_text(step: ApplyStep) -> str:
    """The text of a step."""
    if step.file is not None:
        return f"{TEXTS['']} {step.file.path}"
    text = TEXTS[step.operation]
    if step.operation in (CREATE, UPDATE) and get_base(step.params) is not None:
        text = f"{text.partition(' ')[0]} adapter"
    name = (step.key.within or step.key.name).partition("|")[0]
    return f"{text} {name.removeprefix('inference-component/')}"


def list_texts(steps: Sequence[ApplyStep], bucket: str = "") -> list[str]:
    """The texts of steps, in the order of deploy. `bucket` is a bucket to create, or ""."""
    operations = [it.operation for it in steps]

    def rank(step: ApplyStep) -> tuple[int, bool]:
        at = ORDER.index(step.operation)
        if step.operation == "DeleteInferenceComponent" and "DeleteEndpoint" in operations:
            at = ORDER.index("DeleteEndpoint")
        is_adapter = step.operation in (CREATE, UPDATE) and get_base(step.params) is not None
        return (ORDER.index("RegisterScalableTarget") if is_adapter else at), not is_adapter

    texts = []
    for step in sorted(steps, key=rank):
        if step.file is not None and bucket:
            texts.append(f"create bucket {bucket}")
        texts.append(step_text(step))
    return list(dict.fromkeys(texts))
