"""Artifacts of a container: its model, and those that its variables name by S3 URI."""

from collections.abc import Mapping

from hostelry.domain.model import ArtifactSource, Container, SourceKind

MODEL_VARIABLES = (
    "HF_MODEL_ID", "OPTION_MODEL_ID", "OPTION_MODEL", "SM_VLLM_MODEL", "SAGEMAKER_SUBMIT_DIRECTORY",
)  # fmt: skip
ARCHIVE_SUFFIXES = (".tar.gz", ".tgz", ".tar")


def container_sources(
    container: Container,
) -> tuple[ArtifactSource | None, Mapping[str, ArtifactSource]]:
    """The model's source, and the source each model variable names (those with an s3:// value).

    The model server resolves a Hugging Face id itself; a multi-model container has no model yet.
    """
    named = {
        name: _named_source(value)
        for name in MODEL_VARIABLES
        if (value := container.environment.get(name, "")).startswith("s3://")
    }
    return (None if container.is_multi_model else container.source), named


def hub_model(container: Container) -> str | None:
    """The Hugging Face id that the model server downloads by itself; None where there is none."""
    return hub_model_of(container.environment)


def hub_model_of(environment: Mapping[str, str]) -> str | None:
    """`hub_model` of a container with these variables."""
    named = ("OPTION_MODEL_ID", "OPTION_MODEL", "SM_VLLM_MODEL", "HF_MODEL_ID")
    model_id = next((it for name in named if (it := environment.get(name))), "")
    return None if not model_id or "://" in model_id or model_id[0] in "/." else model_id


def _named_source(uri: str) -> ArtifactSource:
    if uri.endswith(ARCHIVE_SUFFIXES):
        return ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE)
    return ArtifactSource(uri=uri.rstrip("/") + "/", kind=SourceKind.PREFIX)
