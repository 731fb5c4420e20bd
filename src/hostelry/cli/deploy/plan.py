"""A planned deployment: a model, an endpoint, components, and uploads. Plain values."""

import hashlib
from collections.abc import Collection, Mapping, Sequence

import msgspec

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.artifacts.files import FoundFile, ObjectOrder
from hostelry.cli.deploy.recognise import DeployKind, Recognised
from hostelry.cli.deploy.reservation import (
    Machine,
    Reservation,
    check_fits,
    copies_within,
    instance_type_for,
)
from hostelry.cli.deploy.source import (
    AdapterSource,
    Found,
    Origin,
    adapter_name,
    add_digest,
    check_name,
)
from hostelry.domain.shape import Requirements
from hostelry.domain.validation import MAX_COPIES
from hostelry.fleet.shapes import get_shape

VARIANT = "AllTraffic"
FOLDER = "deploy"
DIGEST_LETTERS = 16
ADAPTER_RANK = 64
DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
Digests = Mapping[str, str]  # SHA-256 of files, by path
REGISTRY = "763104351884.dkr.ecr.{region}.amazonaws.com/"
ALGORITHMS = "683313688378.dkr.ecr.{region}.amazonaws.com/"
LLM_IMAGE = REGISTRY + "djl-inference:0.33.0-lmi15.0.0-cu128"
TRITON_IMAGE = "785573368785.dkr.ecr.{region}.amazonaws.com/sagemaker-tritonserver:24.09-py3"
GRAPH_IMAGE = "hostelry/graph"
FRAMEWORK_IMAGES: Mapping[str, str] = {
    "sklearn": ALGORITHMS + "sagemaker-scikit-learn:{version}-1-cpu-py3",
    "xgboost": ALGORITHMS + "sagemaker-xgboost:{version}-1",
    "pytorch": REGISTRY + "pytorch-inference:{version}.0-cpu-py311",
    "tensorflow": REGISTRY + "tensorflow-inference:{version}.0-cpu",
    "huggingface": REGISTRY
    + "huggingface-pytorch-inference:2.6.0-transformers{version}.0-cpu-py312-ubuntu22.04",
    "autogluon": REGISTRY + "autogluon-inference:{version}.0-cpu-py311",
}


class ModelOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A model to create. `uri` is "" for an image, and an archive's address with `is_archive`."""

    name: str
    image: str
    environment: Mapping[str, str]
    uri: str = ""
    is_archive: bool = False


class AdapterOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The component of an adapter, and its archive in S3."""

    component: str
    adapter: str
    uri: str


class ScalingOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the number of copies, and the target of concurrent requests per copy."""

    min_copies: int
    max_copies: int
    target: float = 5.0


class ConfigOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint configuration to create. Its name ends in a digest of the other fields."""

    name: str
    instance_type: str
    initial_instances: int
    min_instances: int
    max_instances: int


class ModelDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that must exist. With `copies` None, one copy is created and its number kept."""

    name: str
    bucket: str
    objects: tuple[ObjectOrder, ...]
    model: ModelOrder
    config: ConfigOrder
    requirements: Requirements
    copies: int | None
    adapters: tuple[AdapterOrder, ...]
    scaling: ScalingOrder | None


class DeployOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command. None if they were not given."""

    source: str = ""
    name: str
    adapters: str | None = None
    kind: str | None = None
    memory_mb: int | None = None
    instance_type: str | None = None
    copies: int | None = None
    min_copies: int | None = None
    max_copies: int | None = None
    environment: Mapping[str, str]


class DeployAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The account and region of the platform, and the bucket of its uploads."""

    region: str
    account_id: str

    @property
    def bucket(self) -> str:
        """The bucket that the SageMaker SDKs use by default."""
        return f"sagemaker-{self.region}-{self.account_id}"


class DeploySource(msgspec.Struct, frozen=True, kw_only=True):
    """A source with its adapters, and the digests of their files."""

    found: Found
    recognised: Recognised
    adapters: Sequence[AdapterSource] = ()
    digests: Digests


def plan_deployment(
    source: DeploySource,
    reserved: Reservation,
    options: DeployOptions,
    account: DeployAccount,
    present_type: str | None,
) -> ModelDeployment:
    """Plan the deployment of a source. Raises TerminalError for options that contradict.

    `present_type` is the endpoint's present instance type, or None without an endpoint.
    """
    found, recognised, adapters = source.found, source.recognised, source.adapters
    check_name("--name", options.name)
    check_adapters(recognised, adapters)
    check_default_model(found, recognised, options)
    scaling, copies = counts(options)
    objects, uri = model_objects(found, account.bucket, source.digests)
    packed = {it.name: adapter_object(it, source.digests) for it in adapters if not it.uri}
    most = scaling.max_copies if scaling else copies or 1
    instance_type = options.instance_type
    if instance_type is None:
        instance_type = instance_type_for(reserved.requirements, most, present_type)
    check_fits(reserved.requirements, instance_type)
    return ModelDeployment(
        name=options.name,
        bucket=account.bucket,
        objects=(*objects, *packed.values()),
        model=model_order(found, recognised, options, account, uri),
        config=config_order(options.name, instance_type, reserved, scaling, most),
        requirements=reserved.requirements,
        copies=copies,
        adapters=tuple(
            AdapterOrder(
                component=adapter_name(options.name, adapter.name),
                adapter=adapter.name,
                uri=adapter.uri or f"s3://{account.bucket}/{packed[adapter.name].key}",
            )
            for adapter in adapters
        ),
        scaling=scaling,
    )


def check_adapters(recognised: Recognised, adapters: Sequence[AdapterSource]) -> None:
    """Raise UsageError if adapters are given for a model that cannot have any."""
    if adapters and recognised.kind not in (DeployKind.LLM, DeployKind.IMAGE):
        raise UsageError(f"--adapters is for language models; this is {recognised.title}")


def check_default_model(found: Found, recognised: Recognised, options: DeployOptions) -> None:
    """Raise TerminalError for a Triton repository that does not say which model answers."""
    if recognised.kind is not DeployKind.TRITON or DEFAULT_MODEL in options.environment:
        return
    models = sorted({it.split("/")[0] for it in found.names if it.endswith("/config.pbtxt")})
    if len(models) > 1:
        raise TerminalError(
            f"the repository has the models {', '.join(models)}: say which answers with "
            f"--env {DEFAULT_MODEL}={models[0]}"
        )


def counts(options: DeployOptions) -> tuple[ScalingOrder | None, int | None]:
    """The bounds from --min and --max, and the number of copies. None keeps the number."""
    least, most, copies = options.min_copies, options.max_copies, options.copies
    for option, value in (("--copies", copies), ("--max", most)):
        if value is not None and not 1 <= value <= MAX_COPIES:
            raise TerminalError(f"{option} is {value}; it must be 1 to {MAX_COPIES}")
    if least is None and most is None:
        return None, copies
    least = 1 if least is None else least
    most = max(least, copies or 1, 1) if most is None else most
    if not 0 <= least <= most:
        raise UsageError(f"--min is {least} and --max {most}; 0 <= --min <= --max must hold")
    if copies is not None and not least <= copies <= most:
        raise UsageError(f"--copies is {copies}, outside of --min {least} and --max {most}")
    # The policy decides between the bounds, so a repeated deployment sets no number.
    return ScalingOrder(min_copies=least, max_copies=most), None


def model_objects(
    found: Found, bucket: str, digests: Digests
) -> tuple[tuple[ObjectOrder, ...], str]:
    """The objects to upload for a model, and the model's address in S3, or ""."""
    match found.place:
        case Origin.PREFIX | Origin.OBJECT:
            return (), found.uri
        case Origin.IMAGE | Origin.HUB:
            return (), ""
        case Origin.ARCHIVE:
            own = found.archive
            assert own is not None, "an archive is a file"
            key = f"{FOLDER}/{digests[own.path][:DIGEST_LETTERS]}/model.tar.gz"
            return (ObjectOrder(key=key, files=(own,)),), f"s3://{bucket}/{key}"
    folder = f"{FOLDER}/{content_digest(found.files, digests)}"
    objects = tuple(ObjectOrder(key=f"{folder}/{it.name}", files=(it,)) for it in found.files)
    return objects, f"s3://{bucket}/{folder}/"


def adapter_object(adapter: AdapterSource, digests: Digests) -> ObjectOrder:
    """The archive that an adapter's files are packed into."""
    digest = content_digest(adapter.files, digests)
    key = f"{FOLDER}/{digest}/{adapter.name}.tar.gz"
    return ObjectOrder(key=key, files=adapter.files, packed=True)


def content_digest(files: Sequence[FoundFile], digests: Digests) -> str:
    """A digest of the names and contents of files."""
    whole = hashlib.sha256()
    for name, path in sorted((it.name, it.path) for it in files):
        whole.update(f"{name}\0{digests[path]}\n".encode())
    return whole.hexdigest()[:DIGEST_LETTERS]


def model_order(
    found: Found, recognised: Recognised, options: DeployOptions, account: DeployAccount, uri: str
) -> ModelOrder:
    """The model to create. Its name contains a digest of all inputs."""
    image = found.given if recognised.kind is DeployKind.IMAGE else ""
    image = image.removeprefix("docker://") or choose_image(recognised, account.region)
    environment = {**build_environment(found, recognised), **options.environment}
    listing = "".join(f"{it.name}\0{it.etag}\0{it.size_bytes}\n" for it in found.files if it.etag)
    variables = "".join(f"{name}={value}\n" for name, value in sorted(environment.items()))
    return ModelOrder(
        name=add_digest(options.name, image, uri, variables, listing, found.revision),
        image=image,
        environment=environment,
        uri=uri,
        is_archive=found.place in (Origin.ARCHIVE, Origin.OBJECT),
    )


def build_environment(found: Found, recognised: Recognised) -> dict[str, str]:
    """The variables that the source needs. Variables of --env override them."""
    if recognised.kind is DeployKind.LLM:
        variables: dict[str, str] = {}
        if recognised.has_adapters:
            variables |= {
                "OPTION_ENABLE_LORA": "true", "OPTION_MAX_LORA_RANK": str(ADAPTER_RANK),
            }  # fmt: skip
        if found.place is Origin.HUB:
            variables |= {
                "OPTION_MODEL_ID": found.given.removeprefix("hf://"),
                "OPTION_REVISION": found.revision,
            }
        return variables
    if recognised.kind is DeployKind.FRAMEWORK and recognised.code_folder == "":
        return {
            "SAGEMAKER_PROGRAM": "inference.py",
            "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model",
        }
    return {}


def config_order(
    name: str,
    instance_type: str,
    reserved: Reservation,
    scaling: ScalingOrder | None,
    most: int,
) -> ConfigOrder:
    """The endpoint's configuration, with instances for all copies and one more for updates."""
    each = max(1, copies_within(reserved.requirements, get_shape(instance_type)))
    initial = 1 if scaling else -(-most // each)
    least = 0 if scaling and scaling.min_copies == 0 else 1
    largest = -(-most // each) + 1
    parts = (instance_type, str(initial), str(least), str(largest))
    return ConfigOrder(
        name=add_digest(name, *parts),
        instance_type=instance_type,
        initial_instances=initial,
        min_instances=least,
        max_instances=largest,
    )


def disk_need(
    deployment: ModelDeployment, present: Collection[str], machine: Machine
) -> str | None:
    """Why the uploads do not fit on the disk. None if they fit.

    The object store keeps one copy of the files, and the instance that serves them another.
    """
    missing = sum(it.num_bytes for it in deployment.objects if it.key not in present)
    if 2 * missing <= machine.free_disk_bytes:
        return None
    return (
        f"the upload has {missing / 1e9:.1f} GB, which the object store and an instance keep once "
        f"each; the home's disk has {machine.free_disk_bytes / 1e9:.1f} GB free"
    )


def choose_image(recognised: Recognised, region: str) -> str:
    """The image for a source that is not an image itself."""
    pattern = {
        DeployKind.LLM: LLM_IMAGE,
        DeployKind.TRITON: TRITON_IMAGE,
        DeployKind.GRAPH: GRAPH_IMAGE,
    }.get(recognised.kind) or FRAMEWORK_IMAGES[recognised.framework]
    return pattern.format(region=region, version=recognised.version)
