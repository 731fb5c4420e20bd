"""Location of the model's files: the model folder, another local folder, or a hub download."""

import logging
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.settings.config import SHOWN_CHARACTERS, ConfigurationError, LmiConfig

MODEL_FILES = ("*.json", "*.jinja", "*.safetensors")

log = logging.getLogger(__name__)


def model_folder(config: LmiConfig) -> Path:
    """The folder with config.json, downloaded from the hub if necessary.

    Raises ConfigurationError with the folder or id and the reason why it cannot be used.
    """
    model_id = config.model_id
    folder = config.model_dir if model_id is None else local_model(config, model_id)
    if folder is None:
        folder = download(model_id or "", config.revision, config.adapters)
    if not (folder / "config.json").is_file():
        raise ConfigurationError(
            f"{folder} holds no config.json; put a Hugging Face model there, or name one in "
            "option.model_id (HF_MODEL_ID)"
        )
    return folder


def local_model(config: LmiConfig, model_id: str) -> Path | None:
    """The local folder that `model_id` names; None when it is an id of the hub.

    Raises ConfigurationError for a folder that is neither the model's nor an artifact of its own.
    """
    if model_id.startswith("s3://"):
        raise ConfigurationError(
            f"model_id is {model_id}: S3 prefixes are fetched before this server starts. Give "
            "the prefix in the model's environment or as its data source, or a local folder here"
        )
    if model_id in config.artifact_folders:
        return Path(model_id)
    inside = path_inside(model_id, config.model_dir)
    if inside is None:
        raise ConfigurationError(
            f"model_id is {model_id[:SHOWN_CHARACTERS]!r}; it must be an id of the hub, an s3:// "
            "URI in the model's environment, or a folder inside the model folder"
        )
    if inside.is_dir() or PurePosixPath(model_id).is_absolute():
        return inside
    return None


def download(model_id: str, revision: str | None, adapters: PurePosixPath) -> Path:
    """Download the snapshot of a hub model, including its adapters; its folder.

    Uses the operator's HF_HOME, HF_TOKEN and HF_HUB_OFFLINE.
    """
    log.info("fetching %s (revision %s) from the hub", model_id, revision or "main")
    try:
        patterns = [*MODEL_FILES, f"{adapters}/*"]
        return Path(snapshot_download(model_id, revision=revision, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigurationError(
            f"model_id is {model_id}, which is no local folder and cannot be fetched from the "
            f"hub: {error}"
        ) from error


def adapter_folders(folders: Iterable[Path], adapters: PurePosixPath) -> list[tuple[str, Path]]:
    """Name and folder of every adapter in the folder `adapters` of each of `folders`.

    Raises ConfigurationError for a name that is in two of them.
    """
    found: dict[str, Path] = {}
    for folder in dict.fromkeys(each.resolve() for each in folders):
        parent = path_inside(str(adapters), folder)
        if parent is None or not parent.is_dir():
            continue
        for child in sorted(parent.iterdir()):
            if not child.is_dir() or child.name.startswith("."):
                continue
            if path_inside(f"{adapters}/{child.name}", folder) is None:
                raise ConfigurationError(f"adapter {child.name} is a link out of {folder}")
            if child.name in found:
                raise ConfigurationError(
                    f"adapter {child.name} lies in both {found[child.name]} and {child}; "
                    "keep one of them"
                )
            found[child.name] = child
    return list(found.items())
