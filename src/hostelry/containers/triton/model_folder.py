"""Models' folders in a repository of Triton: read, checked, and the one for requests chosen.

    MODEL/config.pbtxt
    MODEL/1/model.py, model.onnx, ...     a version's files

Source: Triton's pages on model repositories, model configuration and ensembles.
"""

import itertools
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.text_format import (
    Message,
    TextFormatError,
    get_messages,
    get_text,
    parse_message,
)

CONFIG = "config.pbtxt"
DEFAULT_NAME = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
ENSEMBLE = "ensemble"
MAX_LISTED, MAX_SHOWN = 20, 80
PLAIN_CLASS = re.compile(r"^class\s+TritonPythonModel\s*(\(\s*(object\s*)?\)\s*)?:", re.MULTILINE)
# Values of a configuration's older field `platform` that differ from the backend's name.
PLATFORMS: Mapping[str, str] = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
}
# Triton derives a backend from these files if the configuration names none.
KNOWN_FILES: Mapping[str, str] = {
    "model.onnx": "onnxruntime",
    "model.pt": "pytorch",
    "model.plan": "tensorrt",
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.xml": "openvino",
    "model.py": "python",
}
MAX_CONFIG_BYTES = 256 << 10
VERSION = re.compile(r"[1-9][0-9]{0,17}")
MAX_PYTHON_FILES = 100


class ModelFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A model's folder: its configuration, and the file names in it and in its version folders.

    Without the file, `config` is not set. `config_fault` is the reason why it cannot be read.
    `has_end` means that the model's Python may act when it is unloaded.
    """

    name: str
    config: Message | None = None
    config_fault: str = ""
    files: frozenset[str] = frozenset()
    versions: Mapping[str, frozenset[str]] = msgspec.field(default_factory=dict)
    has_end: bool = True

    @property
    def backend(self) -> str:
        """The backend of the configuration or of the files. Empty if unknown."""
        config = self.config or {}
        platform = get_text(config, "platform")
        named = get_text(config, "backend") or PLATFORMS.get(platform, platform)
        held = frozenset().union(*self.versions.values())
        return named or next((it for file, it in KNOWN_FILES.items() if file in held), "")

    @property
    def steps(self) -> tuple[str, ...]:
        """The models that an ensemble calls."""
        schedules = get_messages(self.config or {}, "ensemble_scheduling")
        return tuple(
            get_text(step, "model_name")
            for schedule in schedules
            for step in get_messages(schedule, "step")
        )

    @property
    def can_be_killed(self) -> bool:
        """True if its processes may be killed, because no code of it would run at its end."""
        return self.backend == ENSEMBLE or (self.backend == "python" and not self.has_end)

    @property
    def is_stateless(self) -> bool:
        """True if requests are independent: no sequences, and one answer each."""
        config = self.config or {}
        decoupled = get_messages(config, "model_transaction_policy")
        streams = any(get_text(it, "decoupled").lower() in ("true", "1", "t") for it in decoupled)
        return not streams and not get_messages(config, "sequence_batching")


def may_have_end(texts: Iterable[str]) -> bool:
    """True if a model of these Python files may have a `finalize`, its own or an inherited one."""
    found = list(texts)
    return any("finalize" in it for it in found) or not any(PLAIN_CLASS.search(it) for it in found)


def choose_model(folders: Sequence[ModelFolder], given: str, multi_model: bool) -> ModelFolder:
    """The model for requests: the archive's only model, or the one named `given`.

    In a multi-model server it is the only model or the only ensemble. Raises TerminalError.
    """
    names = join_names(it.name for it in folders)
    if not folders:
        raise TerminalError(
            "the archive has no model: it must have a folder for each, with config.pbtxt and a "
            "version folder (MODEL/config.pbtxt, MODEL/1/...)"
        )
    if given and not multi_model:
        for folder in folders:
            if folder.name == given:
                return folder
        raise TerminalError(f"{DEFAULT_NAME} is {given[:MAX_SHOWN]!r}; the archive has {names}")
    if len(folders) == 1:
        return folders[0]
    ensembles = [it for it in folders if it.backend == ENSEMBLE]
    if multi_model and len(ensembles) == 1:
        return ensembles[0]
    if multi_model:
        raise TerminalError(
            f"the archive has {names}, of which {len(ensembles)} are ensembles; one of many models "
            "must be one folder, or the models of one ensemble with it"
        )
    hint = f", for example {ensembles[0].name}" if ensembles else ""
    raise TerminalError(
        f"the archive has several models ({names}); name the one that requests are for in "
        f"{DEFAULT_NAME}{hint}"
    )


def find_needed(chosen: ModelFolder, folders: Sequence[ModelFolder]) -> list[ModelFolder]:
    """The model and the models that it calls, also through ensembles. Raises TerminalError."""
    by_name = {it.name: it for it in folders}
    needed: dict[str, ModelFolder] = {}
    pending = [chosen]
    while pending:
        folder = pending.pop(0)
        if folder.name in needed:
            continue
        needed[folder.name] = folder
        for step in folder.steps:
            if step not in by_name:
                raise TerminalError(
                    f"{folder.name}/{CONFIG} has a step of the model {step[:MAX_SHOWN]!r}; the "
                    f"archive has {join_names(by_name)}"
                )
            pending.append(by_name[step])
    return list(needed.values())


def join_names(names: Iterable[str]) -> str:
    """The first names and the number of further names, for a message."""
    listed = list(names)
    more = f" and {len(listed) - MAX_LISTED} more" if len(listed) > MAX_LISTED else ""
    return ", ".join(it[:MAX_SHOWN] for it in listed[:MAX_LISTED]) + more


def check_folder(folder: ModelFolder, backends: Collection[str], server: str) -> None:
    """Raise TerminalError with model and file if Triton cannot load the model.

    `server` is the path of a tritonserver, `backends` its backends.
    """
    name, config = folder.name, folder.config
    if folder.config_fault:
        raise TerminalError(f"{name}/{CONFIG} cannot be read: {folder.config_fault}")
    backend = folder.backend
    if not backend and config is None:
        known = ", ".join(KNOWN_FILES)
        raise TerminalError(f"{name} has no {CONFIG}, nor one of {known} in a version folder")
    if not backend:
        raise TerminalError(f"{name}/{CONFIG} names no backend, nor a platform")
    own_name = get_text(config or {}, "name")
    if own_name not in ("", name):
        raise TerminalError(
            f"{name}/{CONFIG} has the name {own_name[:MAX_SHOWN]!r}; it must be the "
            f"folder's, {name!r}, or none"
        )
    if not folder.versions:
        kind = "an empty one is enough for an ensemble" if backend == ENSEMBLE else "of its files"
        raise TerminalError(f"{name} has no version folder: {name}/1 is needed, {kind}")
    held = folder.files.union(*folder.versions.values())
    if backend != ENSEMBLE and backend not in backends and f"libtriton_{backend}.so" not in held:
        raise TerminalError(
            f"{name}/{CONFIG} needs the backend {backend[:MAX_SHOWN]!r}; {server} has "
            f"{join_names(sorted(backends)) or 'none'}. Install a tritonserver that has it, so "
            "that `hostelry up` finds it in PATH, or let images.toml run the image as a container"
        )


def read_repository(folder: Path) -> list[ModelFolder]:
    """The models of a repository in order of name. Raises TerminalError if it cannot be read."""
    try:
        names = sorted(it.name for it in os.scandir(folder) if it.is_dir())
        return [read_model(folder / it, it) for it in names if not it.startswith(".")]
    except OSError as error:
        raise TerminalError(f"the model's files cannot be read: {error}") from error


def read_model(folder: Path, name: str) -> ModelFolder:
    """One model's folder. Raises OSError."""
    config, fault = read_config(folder / CONFIG)
    entries = list(os.scandir(folder))
    versions = [it.name for it in entries if VERSION.fullmatch(it.name) and it.is_dir()]
    return ModelFolder(
        name=name,
        config=config,
        config_fault=fault,
        files=frozenset(it.name for it in entries),
        versions={it: frozenset(os.listdir(folder / it)) for it in versions},
        has_end=may_have_end(read_python(folder)),
    )


def read_python(folder: Path) -> list[str]:
    """The texts of the Python files below a folder. Empty if they are too many or too large."""
    files = list(itertools.islice(folder.rglob("*.py"), MAX_PYTHON_FILES + 1))
    if len(files) > MAX_PYTHON_FILES or any(it.stat().st_size > MAX_CONFIG_BYTES for it in files):
        return []
    return [it.read_text(errors="replace") for it in files]


def read_config(file: Path) -> tuple[Message | None, str]:
    """A configuration, or the reason why it cannot be read. Neither without the file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            return None, f"it has more than {MAX_CONFIG_BYTES} bytes"
        return parse_message(content.decode()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, UnicodeDecodeError, TextFormatError) as error:
        return None, str(error)


def find_repository(
    folder: Path, scratch: Path, multi_model: bool
) -> tuple[Path, Sequence[ModelFolder]]:
    """The repository in an archive's folder, and its models. Raises TerminalError.

    In a multi-model server the folder may be the model itself. Its repository is made in `scratch`.
    """
    if not (folder / CONFIG).is_file():
        return folder, read_repository(folder)
    if not multi_model:
        raise TerminalError(
            f"{CONFIG} is at the archive's top; the model needs a folder around it: "
            f"MODEL/{CONFIG}, MODEL/1/..."
        )
    config, _ = read_config(folder / CONFIG)
    name = get_text(config or {}, "name")
    is_usable = name and "/" not in name and not name.startswith(".")
    repository = scratch / "repository"
    repository.mkdir(exist_ok=True)
    link = repository / (name if is_usable else "model")
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    return repository, read_repository(repository)
