"""From a ContainerDefinition to a domain container."""

from collections.abc import Mapping
from typing import Any

from hostelry.api.refusals import refuse_fields, unsupported
from hostelry.base.errors import validation_error
from hostelry.domain import s3_address
from hostelry.domain.model import ArtifactSource, Container, ModelCacheSetting, SourceKind

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


def container_of(given: Mapping[str, Any], path: str) -> Container:
    """The container that `given` defines; `path` names it in messages."""
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
        source=models_below(given, path) if is_multi_model else source_of(given, path),
        model_cache=ModelCacheSetting(setting),
        environment=dict(given.get("Environment") or {}),
        hostname=given.get("ContainerHostname"),
    )


def models_below(given: Mapping[str, Any], path: str) -> ArtifactSource:
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
    found = s3_uri_of(url, f"{path}.ModelDataUrl", is_prefix=True)
    if found.endswith(ARCHIVE_SUFFIXES):
        raise validation_error(
            f'{path}.ModelDataUrl "{url}" names an archive; for Mode {MULTI_MODEL} it must be the '
            "prefix below which the models' archives are."
        )
    return ArtifactSource(uri=found.rstrip("/") + "/", kind=SourceKind.MODELS)


def source_of(given: Mapping[str, Any], path: str) -> ArtifactSource | None:
    """The source of the container's model; None where it has none."""
    url = given.get("ModelDataUrl")
    s3_source = (given.get("ModelDataSource") or {}).get("S3DataSource")
    if url and s3_source:
        raise validation_error(
            f"{path}.ModelDataUrl and {path}.ModelDataSource exclude each other; give one of them."
        )
    if url:
        return archive_at(url, f"{path}.ModelDataUrl")
    if s3_source:
        return s3_source_of(s3_source, f"{path}.ModelDataSource.S3DataSource")
    return None


def s3_source_of(given: Mapping[str, Any], path: str) -> ArtifactSource:
    """The source that an S3DataSource describes."""
    refuse_fields(given, UNSUPPORTED_SOURCE, f"{path}.")
    uri = given["S3Uri"]
    kind = SOURCE_KINDS.get((given["S3DataType"], given["CompressionType"]))
    if kind is None:
        raise validation_error(
            f"{path}: CompressionType {given['CompressionType']} does not go with S3DataType"
            f" {given['S3DataType']}; an archive is one object, so use S3Object with Gzip."
        )
    found = s3_uri_of(uri, f"{path}.S3Uri")
    if (kind is SourceKind.PREFIX) != found.endswith("/"):
        ends = "must" if kind is SourceKind.PREFIX else "must not"
        raise validation_error(
            f'{path}.S3Uri "{uri}" {ends} end with "/" where S3DataType is {given["S3DataType"]}.'
        )
    return ArtifactSource(uri=found, kind=kind)


def archive_at(uri: str, path: str) -> ArtifactSource:
    """The .tar.gz object at `uri`."""
    found = s3_uri_of(uri, path)
    if found.endswith("/"):
        raise validation_error(
            f'{path} "{uri}" must name one .tar.gz object; for the objects under a prefix use a'
            " model with ModelDataSource, S3DataType S3Prefix and CompressionType None."
        )
    return ArtifactSource(uri=found, kind=SourceKind.ARCHIVE)


def s3_uri_of(uri: str, path: str, *, is_prefix: bool = False) -> str:
    """The ``s3://bucket/key`` that `uri` means, which may be one of AWS's web addresses of it.

    A prefix may be empty. The address is only read: the object comes from the platform's own store.
    """
    scheme, _, rest = uri.partition("://")
    if scheme == "https":
        return s3_uri_of(from_web_address(uri, path), path, is_prefix=is_prefix)
    if scheme != "s3":
        raise unsupported(f'{path} "{uri}"', "Give it as s3://bucket/key.")
    bucket, _, key = rest.partition("/")
    if not bucket or not (key or is_prefix):
        raise validation_error(f'{path} "{uri}" names no object; give it as s3://bucket/key.')
    return uri


def from_web_address(uri: str, path: str) -> str:
    """The ``s3://bucket/key`` of an https address of S3, path-style or with the bucket as host."""
    found = s3_address.from_web_address(uri)
    if found is None:
        raise unsupported(
            f'{path} "{uri}"',
            "Give it as s3://bucket/key, or as https://bucket.s3.REGION.amazonaws.com/key.",
        )
    return found
