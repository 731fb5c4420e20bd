"""Where the model's files are: the model folder, another local folder, or a hub download."""

import logging
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from hostelry.containers.lmi.config import CONTAINER_MODEL_DIR, ConfigurationError, LmiConfig

WANTED_FILES = ("*.json", "*.jinja", "*.safetensors")

log = logging.getLogger(__name__)


def model_folder(config: LmiConfig) -> Path:
    """The folder that holds config.json, downloaded from the hub if need be.

    Raises ConfigurationError saying which folder or id was meant and why it cannot be used.
    """
    model_id = config.model_id
    folder = config.model_dir if model_id is None else local_model(model_id, config.model_dir)
    if folder is None:
        folder = download(model_id or "", config.revision, config.adapters)
    if not (folder / "config.json").is_file():
        raise ConfigurationError(
            f"{folder} holds no config.json; put a Hugging Face model there, or name one in "
            "option.model_id (HF_MODEL_ID)"
        )
    return folder


def local_model(model_id: str, model_dir: Path) -> Path | None:
    """The local folder that `model_id` means; None when it is an id of the hub."""
    if model_id.startswith("s3://"):
        raise ConfigurationError(
            f"model_id is {model_id}: S3 prefixes are fetched before this server starts. Give "
            "the prefix in the model's environment or as its data source, or a local folder here"
        )
    path = PurePosixPath(model_id)
    if path.is_relative_to(CONTAINER_MODEL_DIR):
        inside = model_dir / path.relative_to(CONTAINER_MODEL_DIR)
        return inside if inside.is_dir() else Path(model_id)
    if path.is_absolute():
        return Path(model_id)
    inside = model_dir / model_id
    return inside if inside.is_dir() else None


def download(model_id: str, revision: str | None, adapters: PurePosixPath) -> Path:
    """The snapshot of a hub model and the folder of its adapters.

    Follows the operator's HF_HOME, HF_TOKEN and HF_HUB_OFFLINE.
    """
    log.info("fetching %s (revision %s) from the hub", model_id, revision or "main")
    try:
        wanted = [*WANTED_FILES, f"{adapters}/*"]
        return Path(snapshot_download(model_id, revision=revision, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigurationError(
            f"model_id is {model_id}, which is no local folder and cannot be fetched from the "
            f"hub: {error}"
        ) from error


def adapter_folders(folders: Iterable[Path], adapters: PurePosixPath) -> list[tuple[str, Path]]:
    """Name and folder of every adapter in the folder `adapters` of each of `folders`.

    Raises ConfigurationError for a name that two of them give to different folders.
    """
    found: dict[str, Path] = {}
    for folder in dict.fromkeys(each.resolve() for each in folders):
        parent = folder / adapters
        if not parent.is_dir():
            continue
        for child in sorted(parent.iterdir()):
            if not child.is_dir() or child.name.startswith("."):
                continue
            if child.name in found:
                raise ConfigurationError(
                    f"adapter {child.name} lies in both {found[child.name]} and {child}; "
                    "keep one of them"
                )
            found[child.name] = child
    return list(found.items())
