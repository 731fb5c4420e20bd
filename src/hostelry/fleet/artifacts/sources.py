"""Artifacts of a container: its model, and the artifacts that its variables name by S3 URI."""

from collections.abc import Mapping

from hostelry.domain.model import ArtifactSource, Container, SourceKind
from hostelry.fleet.artifacts.hub import SCHEME

MODEL_VARIABLES = (
    "HF_MODEL_ID", "OPTION_MODEL_ID", "OPTION_MODEL", "SM_VLLM_MODEL", "SAGEMAKER_SUBMIT_DIRECTORY",
)  # fmt: skip
HUB_MODEL = "HUB_MODEL"  # of an LLM whose model the agent has downloaded from the hub
REVISION_VARIABLES = ("OPTION_REVISION", "SM_VLLM_REVISION", "HF_MODEL_REVISION", "HF_REVISION")
TOKEN_VARIABLES = ("OPTION_HF_TOKEN", "SM_VLLM_HF_TOKEN", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")


def container_sources(
    container: Container,
) -> tuple[ArtifactSource | None, Mapping[str, ArtifactSource]]:
    """The model's source, and the sources of the model variables with an s3:// value.

    The model server resolves a Hugging Face id itself. A multi-model container has no model yet.
    """
    named = {
        name: _named_source(value)
        for name in MODEL_VARIABLES
        if (value := container.environment.get(name, "")).startswith("s3://")
    }
    return (None if container.is_multi_model else container.source), named


def find_hub_model(container: Container) -> str | None:
    """The Hugging Face id that the model server downloads by itself, or None."""
    return find_hub_model_in(container.environment)


def find_hub_model_in(environment: Mapping[str, str]) -> str | None:
    """The Hugging Face id in these variables of a container, or None."""
    named = ("OPTION_MODEL_ID", "OPTION_MODEL", "SM_VLLM_MODEL", "HF_MODEL_ID")
    model_id = next((it for name in named if (it := environment.get(name))), "")
    return None if not model_id or "://" in model_id or model_id[0] in "/." else model_id


def find_hub_source(container: Container) -> ArtifactSource | None:
    """The model of the hub that the container's variables name, or None."""
    model_id = find_hub_model(container)
    if model_id is None or container.is_multi_model:
        return None
    revision = _get_first(container, REVISION_VARIABLES)
    uri = f"{SCHEME}{model_id}" if revision is None else f"{SCHEME}{model_id}@{revision}"
    return ArtifactSource(uri=uri, kind=SourceKind.PREFIX)


def find_hub_token(container: Container) -> str | None:
    """The container's own token of the hub."""
    return _get_first(container, TOKEN_VARIABLES)


def hub_variables(container: Container) -> tuple[str, ...]:
    """The variables that name the hub's model of the container."""
    model_id, given = find_hub_model(container), container.environment
    return tuple(name for name in MODEL_VARIABLES if given.get(name) == model_id)


def _get_first(container: Container, names: tuple[str, ...]) -> str | None:
    return next((it for name in names if (it := container.environment.get(name))), None)


def _named_source(uri: str) -> ArtifactSource:
    if uri.endswith(ARCHIVE_SUFFIXES):
        return ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE)
    return ArtifactSource(uri=uri.rstrip("/") + "/", kind=SourceKind.PREFIX)
