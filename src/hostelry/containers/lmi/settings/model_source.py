"""Location of the model's files: the model folder, another local folder, or a hub download."""

import logging
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from msgspec.structs import replace

from hostelry.containers.lmi.artifact_path import path_inside
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.settings.engine_settings import EngineSettings
from hostelry.containers.lmi.settings.option_reader import SHOWN_CHARACTERS, ConfigurationError

MODEL_FILES = ("*.json", "*.jinja", "*.safetensors")

# A folder with one of these is a model.
MODEL_MARKS = ("serving.properties", "config.json", "model.py")
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@[\w.-]+)?")

LOG = logging.getLogger(__name__)


def model_folder(config: LmiConfig) -> Path:
    """The folder with config.json, downloaded from the hub if necessary.

    Raises ConfigurationError with the folder or id and the reason why it cannot be used.
    """
    model_id = config.model_id
    folder = config.model_dir if model_id is None else local_model(config, model_id)
    if folder is None:
        folder = download(model_id or "", config)
    if not (folder / "config.json").is_file():
        raise ConfigurationError(
            f"{folder} holds no config.json; put a Hugging Face model there, or name one in "
            "option.model_id (HF_MODEL_ID)"
        )
    return folder


def local_model(config: LmiConfig, model_id: str) -> Path | None:
    """The local folder that `model_id` names. None if it is an id of the hub.

    Raises ConfigurationError for a folder that is neither the model's nor one of its artifacts.
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


def download(model_id: str, config: LmiConfig) -> Path:
    """Download the snapshot of a hub model, including its adapters. Returns its folder.

    Returns the folder of the agent's download if there is one. Otherwise uses the operator's
    HF_HOME and HF_HUB_OFFLINE, and the configured token before HF_TOKEN.
    """
    if config.hub_folder is not None:
        return Path(config.hub_folder)
    LOG.info("fetching %s (revision %s) from the hub", model_id, config.revision or "main")
    try:
        return Path(
            snapshot_download(
                model_id,
                revision=config.revision,
                allow_patterns=[*MODEL_FILES, f"{config.adapters}/*"],
                token=config.hf_token,
            )
        )
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ConfigurationError(
            f"model_id is {model_id}, which is no local folder and cannot be fetched from the "
            f"hub: {error}"
        ) from error


def locate_draft_model(settings: EngineSettings, config: LmiConfig) -> EngineSettings:
    """The settings with the real folder of the draft model that an option names.

    Raises ConfigurationError if it is not a model inside the model folder.
    """
    arguments = dict(settings.vllm)
    speculation = dict(arguments.get("speculative_config", {}))
    for option, members, name in (
        ("spec_model", arguments, "spec_model"), ("speculative_config", speculation, "model"),
    ):  # fmt: skip
        if name not in members:
            continue
        folder = path_inside(members[name], config.model_dir)
        if folder is None or not (folder / "config.json").is_file():
            raise ConfigurationError(
                f"option.{option} names the model {members[name][:SHOWN_CHARACTERS]!r}; it must be "
                "a folder with a config.json inside the model folder"
            )
        members[name] = str(folder)
    if speculation:
        arguments["speculative_config"] = speculation
    return replace(settings, vllm=arguments)


def nested_model(model_dir: Path) -> Path:
    """The only folder in `model_dir` if it holds a model, else `model_dir`, as in DJL Serving.

    Archives often contain only one folder, besides hidden files.
    """
    inside = [it for it in model_dir.iterdir() if not it.name.startswith(".")]
    if len(inside) != 1 or inside[0].is_symlink() or not inside[0].is_dir():
        return model_dir
    return inside[0] if any((inside[0] / it).is_file() for it in MODEL_MARKS) else model_dir


def module_adapters(config: LmiConfig) -> tuple[list[tuple[str, Path]], list[tuple[str, str]]]:
    """The adapters of option lora_modules: name and folder, and name and URI of the hub's.

    Raises ConfigurationError for a path out of the model folder.
    """
    local: list[tuple[str, Path]] = []
    remote: list[tuple[str, str]] = []
    for module in config.lora_modules:
        path = path_inside(module.path, config.model_dir)
        if path is not None and path.is_dir():
            local.append((module.name, path))
        elif HUB_ID.fullmatch(module.path):
            remote.append((module.name, f"hf://{module.path}"))
        else:
            raise ConfigurationError(
                f"lora_modules names {module.path[:SHOWN_CHARACTERS]!r} for {module.name}; it must "
                "be a folder inside the model folder, or an id of the hub (ORGANISATION/NAME)"
            )
    return local, remote


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
