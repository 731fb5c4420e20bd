"""CreateModel, DescribeModel, ListModels and DeleteModel, and the containers of models.

A model has one container, a pipeline of containers, or several containers that requests name.
Source: CreateModel, ContainerDefinition and InferenceExecutionConfig in the SageMaker API
reference, and "Inference pipelines" and "Multi-container endpoints" in the developer guide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.iam.execution_role import check_execution_role
from hostelry.api.page import list_answer, passes
from hostelry.api.refusals import echo_members, refuse_fields, refuse_isolation, unsupported
from hostelry.api.sagemaker.kinds import MODELS, check_new
from hostelry.api.tags import parse_tags, write_tags
from hostelry.base.errors import validation_error
from hostelry.domain import async_request
from hostelry.domain.model import (
    ArtifactSource,
    Container,
    ExecutionMode,
    Model,
    ModelCacheSetting,
    SourceKind,
    is_target,
)
from hostelry.domain.role import parse_role_name
from hostelry.domain.validation import check_environment
from hostelry.principals.decisions import is_unlimited

KIND = "model"
ECHOED = (
    "PrimaryContainer",
    "Containers",
    "InferenceExecutionConfig",
    "ExecutionRoleArn",
    "VpcConfig",
    "EnableNetworkIsolation",
)
HOSTNAME = "ContainerHostname"
MAX_CONTAINERS = 15
UNSUPPORTED = (
    "AdditionalModelDataSources",
    "ModelPackageName",
    "InferenceSpecificationName",
)
MULTI_MODEL = "MultiModel"
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")
UNSUPPORTED_SOURCE = ("ManifestS3Uri", "ManifestEtag", "HubAccessConfig", "ETag")

# By S3DataType and CompressionType. Source: S3ModelDataSource in the API reference.
SOURCE_KINDS: Mapping[tuple[str, str], SourceKind] = {
    ("S3Object", "Gzip"): SourceKind.ARCHIVE,
    ("S3Object", "None"): SourceKind.OBJECT,
    ("S3Prefix", "None"): SourceKind.PREFIX,
}
TARGET_TAG = "hostelry:target-model"


def create_model(context: CallContext, params: Params) -> Result:
    """CreateModel. Missing artifacts are reported once a model server needs them."""
    scope, name = context.scope, params["ModelName"]
    tags = parse_tags(params.get("Tags"))
    refuse_isolation(params)
    role = parse_role_name(params.get("ExecutionRoleArn") or "")
    containers = tuple(replace(it, role=role) for it in build_containers(params))
    _check_role_given(context, role, containers)
    check_environment(containers)
    check_new(context, KIND, name)
    check_execution_role(context, params)
    arn = scope.arn(KIND, name)
    model = Model(
        scope=scope,
        name=name,
        arn=arn,
        created_at=context.now,
        containers=containers,
        execution=parse_execution(params),
        given=dict(params),
    )
    MODELS.put(context, model)
    write_tags(context, arn, tags)
    return {"ModelArn": arn}


def _check_role_given(context: CallContext, role: str, containers: Sequence[Container]) -> None:
    """Refuse artifacts without a role that bounds them, for callers that policies limit."""
    caller = context.caller
    if role or caller is None or is_unlimited(caller):
        return
    if any(it.source is not None for it in containers):
        raise validation_error(
            "ExecutionRoleArn is required for a model with artifacts: without a role its copies"
            f" could read more than the policies of {caller.arn} allow."
        )


def describe_model(context: CallContext, params: Params) -> Result:
    """DescribeModel."""
    model = MODELS.find(context, params["ModelName"]).value
    return {
        **_summarize(model),
        "EnableNetworkIsolation": False,
        **echo_members(model.given, ECHOED),
    }


def list_models(context: CallContext, params: Params) -> Result:
    """ListModels."""
    models = [it for it in MODELS.values(context) if passes(it, params)]
    return list_answer(context, "ListModels", params, "Models", models, _summarize)


def _summarize(model: Model) -> Result:
    return {
        "ModelName": model.name,
        "ModelArn": model.arn,
        "CreationTime": model.created_at,
    }


def delete_model(context: CallContext, params: Params) -> Result:
    """DeleteModel. Endpoints and components that use the model keep their own copy."""
    found = MODELS.find(context, params["ModelName"])
    MODELS.delete(context, found)
    write_tags(context, found.value.arn, {})
    return {}


def build_containers(params: Params) -> tuple[Container, ...]:
    """Build the containers of a request, in order. If there are several, each has a name.

    The name of a single container has no effect, and is only shown.
    """
    primary, several = params.get("PrimaryContainer"), params.get("Containers")
    if (primary is None) == (several is None):
        given = "both were" if primary is not None else "none was"
        raise validation_error(
            f"Exactly one of PrimaryContainer and Containers is required; {given} given."
        )
    is_direct = parse_execution(params) is ExecutionMode.DIRECT
    if primary is None and not several:
        raise validation_error("Containers is empty; a model needs a container.")
    entries = several or (primary or {},)
    if len(entries) == 1:
        if is_direct:
            raise validation_error(
                "InferenceExecutionConfig.Mode Direct needs Containers of 2 to "
                f"{MAX_CONTAINERS} entries; the model has one container."
            )
        path = "PrimaryContainer" if several is None else "Containers.1"
        return (replace(_build_container(entries[0], path), hostname=None),)
    names = _get_hostnames(entries, is_direct=is_direct)
    found = tuple(
        replace(_build_container(given, f"Containers.{number}"), hostname=name)
        for number, (given, name) in enumerate(zip(entries, names, strict=True), start=1)
    )
    _check_multi_model(found, is_direct=is_direct)
    return found


def parse_execution(params: Params) -> ExecutionMode:
    """InferenceExecutionConfig.Mode. The default is Serial."""
    config = params.get("InferenceExecutionConfig") or {}
    return ExecutionMode(config.get("Mode", ExecutionMode.SERIAL.value))


def _get_hostnames(several: Sequence[Mapping[str, Any]], *, is_direct: bool) -> Sequence[str]:
    """The containers' names: as given, or ``container-1``, ``container-2`` and so on."""
    given = [it.get(HOSTNAME) for it in several]
    missing = [f"Containers.{number}" for number, it in enumerate(given, start=1) if not it]
    if missing and is_direct:
        raise validation_error(
            f"{missing[0]}.{HOSTNAME} is required: with InferenceExecutionConfig.Mode Direct"
            " requests name the container."
        )
    if missing and len(missing) < len(given):
        raise validation_error(
            f"{missing[0]}.{HOSTNAME} is missing; give it for every container of the pipeline, or"
            " for none."
        )
    names = [it or f"container-{number}" for number, it in enumerate(given, start=1)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise validation_error(
            f'{HOSTNAME} "{twice[0]}" is given to {names.count(twice[0])} containers; each needs a'
            " name of its own."
        )
    return names


def _check_multi_model(containers: Sequence[Container], *, is_direct: bool) -> None:
    """Refuse multi-model containers among others. A pipeline may have one."""
    many = [it.hostname for it in containers if it.is_multi_model]
    if many and is_direct:
        raise validation_error(
            f'Container "{many[0]}" has Mode MultiModel, which InferenceExecutionConfig.Mode Direct'
            " does not allow: a request names a container or a model. Create a pipeline (Mode"
            " Serial), or a model of this container alone."
        )
    if len(many) > 1:
        raise validation_error(
            f"Containers {', '.join(map(str, many))} have Mode MultiModel; a pipeline may have one"
            " such container, as a request has one TargetModel."
        )


def check_one_container(model: Model, where: str, advice: str) -> None:
    """Refuse a model of several containers. `where` names its place in messages."""
    if len(model.containers) > 1:
        raise unsupported(
            f'{where} with model "{model.name}", which has {len(model.containers)} containers',
            advice,
        )


def check_same_containers(variant_name: str, models: Sequence[Model]) -> None:
    """Refuse instance pools whose models do not have the same containers for requests to name."""
    named = {frozenset(it.hostname for it in m.containers) if m.is_direct else None for m in models}
    if len(named) > 1:
        raise validation_error(
            f'The models of the instance pools of production variant "{variant_name}" have'
            " different containers that requests name (InferenceExecutionConfig.Mode Direct); give"
            " all of them the same, under the same ContainerHostname."
        )


def _build_container(given: Mapping[str, Any], path: str) -> Container:
    refuse_fields(given, UNSUPPORTED, f"{path}.")
    if not given.get("Image"):
        raise validation_error(f"{path}.Image is required.")
    is_multi_model = given.get("Mode") == MULTI_MODEL
    config = given.get("MultiModelConfig")
    if config is not None and not is_multi_model:
        raise validation_error(f"{path}.MultiModelConfig is for Mode {MULTI_MODEL} only.")
    setting = (config or {}).get("ModelCacheSetting", ModelCacheSetting.ENABLED.value)
    return Container(
        image=given["Image"],
        source=_build_models_source(given, path) if is_multi_model else _build_source(given, path),
        model_cache=ModelCacheSetting(setting),
        environment=dict(given.get("Environment") or {}),
        hostname=given.get("ContainerHostname"),
    )


def _build_models_source(given: Mapping[str, Any], path: str) -> ArtifactSource:
    """The prefix of a multi-model container, whose models are the objects below it."""
    if given.get("ModelDataSource"):
        raise validation_error(
            f"{path}.ModelDataSource does not go with Mode {MULTI_MODEL}; give the prefix of the "
            "models as ModelDataUrl."
        )
    url = given.get("ModelDataUrl")
    if not url:
        raise validation_error(
            f"{path}.ModelDataUrl is required for Mode {MULTI_MODEL}: the prefix below which the "
            "models are, as s3://bucket/prefix/."
        )
    found = parse_s3_uri(url, f"{path}.ModelDataUrl", is_prefix=True)
    if found.endswith(ARCHIVE_SUFFIXES):
        raise validation_error(
            f'{path}.ModelDataUrl "{url}" names an archive; for Mode {MULTI_MODEL} it must be the '
            "prefix below which the models' archives are."
        )
    return ArtifactSource(uri=found.rstrip("/") + "/", kind=SourceKind.MODELS)


def _build_source(given: Mapping[str, Any], path: str) -> ArtifactSource | None:
    """The source of the container's model, if it has one."""
    url = given.get("ModelDataUrl")
    s3_source = (given.get("ModelDataSource") or {}).get("S3DataSource")
    if url and s3_source:
        raise validation_error(
            f"{path}.ModelDataUrl and {path}.ModelDataSource exclude each other; give one of them."
        )
    if url:
        return build_archive_source(url, f"{path}.ModelDataUrl")
    if s3_source:
        return _build_s3_source(s3_source, f"{path}.ModelDataSource.S3DataSource")
    return None


def _build_s3_source(given: Mapping[str, Any], path: str) -> ArtifactSource:
    refuse_fields(given, UNSUPPORTED_SOURCE, f"{path}.")
    uri = given["S3Uri"]
    kind = SOURCE_KINDS.get((given["S3DataType"], given["CompressionType"]))
    if kind is None:
        raise validation_error(
            f"{path}: CompressionType {given['CompressionType']} does not go with S3DataType"
            f" {given['S3DataType']}; an archive is one object, so use S3Object with Gzip."
        )
    found = parse_s3_uri(uri, f"{path}.S3Uri")
    if (kind is SourceKind.PREFIX) != found.endswith("/"):
        ends = "must" if kind is SourceKind.PREFIX else "must not"
        raise validation_error(
            f'{path}.S3Uri "{uri}" {ends} end with "/" where S3DataType is {given["S3DataType"]}.'
        )
    return ArtifactSource(uri=found, kind=kind)


def build_archive_source(uri: str, path: str) -> ArtifactSource:
    """The .tar.gz object at `uri`."""
    found = parse_s3_uri(uri, path)
    if found.endswith("/"):
        raise validation_error(
            f'{path} "{uri}" must name one .tar.gz object; for the objects under a prefix use a'
            " model with ModelDataSource, S3DataType S3Prefix and CompressionType None."
        )
    return ArtifactSource(uri=found, kind=SourceKind.ARCHIVE)


def parse_s3_uri(uri: str, path: str, *, is_prefix: bool = False) -> str:
    """The ``s3://bucket/key`` of `uri`, which may be one of AWS's web addresses.

    A prefix may be empty. The object always comes from the platform's own store.
    """
    scheme, _, rest = uri.partition("://")
    if scheme == "https":
        return parse_s3_uri(_parse_web_address(uri, path), path, is_prefix=is_prefix)
    if scheme != "s3":
        raise unsupported(f'{path} "{uri}"', "Give it as s3://bucket/key.")
    bucket, _, key = rest.partition("/")
    if not bucket or not (key or is_prefix):
        raise validation_error(f'{path} "{uri}" names no object; give it as s3://bucket/key.')
    return uri


def _parse_web_address(uri: str, path: str) -> str:
    """The ``s3://bucket/key`` of an https address of S3, path-style or with the bucket as host."""
    found = async_request.from_web_address(uri)
    if found is None:
        raise unsupported(
            f'{path} "{uri}"',
            "Give it as s3://bucket/key, or as https://bucket.s3.REGION.amazonaws.com/key.",
        )
    return found


def select_job_model(model: Model, tags: Mapping[str, str]) -> Model:
    """The model that a transform job with `tags` runs.

    The requests of a transform job name no TargetModel, so a tag names the model of a multi-model
    container. The job runs that model alone, as if the container had Mode SingleModel.
    """
    target = tags.get(TARGET_TAG)
    many = [it for it in model.containers if it.is_multi_model]
    if not many:
        if target is not None:
            raise validation_error(
                f'Tag {TARGET_TAG} is "{target}", but model "{model.name}" has no multi-model'
                " container; leave the tag out."
            )
        return model
    if target is None:
        raise validation_error(
            f'Model "{model.name}" is a multi-model container (Mode MultiModel); name the model'
            f' that the job shall use, as the tag {TARGET_TAG} of the job, such as "m1.tar.gz".'
        )
    if not is_target(target):
        raise validation_error(
            f'Tag {TARGET_TAG} is "{target}"; it must be a path below {many[0].models_uri}, with'
            " no empty parts and no dots alone."
        )
    return replace(model, containers=tuple(_select_one(it, target) for it in model.containers))


def _select_one(container: Container, target: str) -> Container:
    if not container.is_multi_model:
        return container
    source = ArtifactSource(uri=container.models_uri + target, kind=SourceKind.ARCHIVE)
    return replace(container, source=source)
