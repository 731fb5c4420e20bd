"""A model's folder in a repository of Triton's: what it has, and why Triton cannot load it. Pure.

    MODEL/config.pbtxt
    MODEL/1/model.py, model.onnx, ...     a version's files

Source: Triton's pages on model repositories, model configuration and ensembles.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.text_format import Message, messages, text_of

CONFIG = "config.pbtxt"
DEFAULT_NAME = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
ENSEMBLE = "ensemble"
MAX_LISTED, MAX_SHOWN = 20, 80
PLAIN_CLASS = re.compile(r"^class\s+TritonPythonModel\s*(\(\s*(object\s*)?\)\s*)?:", re.MULTILINE)
# Of a configuration's older `platform`, where it is not the backend's own name.
PLATFORMS: Mapping[str, str] = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
    "tensorrt_plan": "tensorrt",
}
# Files by which Triton completes a configuration that names no backend.
KNOWN_FILES: Mapping[str, str] = {
    "model.onnx": "onnxruntime",
    "model.pt": "pytorch",
    "model.plan": "tensorrt",
    "model.savedmodel": "tensorflow",
    "model.graphdef": "tensorflow",
    "model.xml": "openvino",
    "model.py": "python",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """A folder: its configuration, and the names in it and in its version folders.

    `config` is None without the file; `config_fault` is why it cannot be read. `has_end` is
    whether its Python may have something to do when it is unloaded.
    """

    name: str
    config: Message | None = None
    config_fault: str = ""
    files: frozenset[str] = frozenset()
    versions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    has_end: bool = True

    @property
    def backend(self) -> str:
        """The backend that the configuration names, or that the files need; empty if unknown."""
        config = self.config or {}
        platform = text_of(config, "platform")
        named = text_of(config, "backend") or PLATFORMS.get(platform, platform)
        held = frozenset().union(*self.versions.values())
        return named or next((it for file, it in KNOWN_FILES.items() if file in held), "")

    @property
    def steps(self) -> tuple[str, ...]:
        """The models that an ensemble calls."""
        found = messages(self.config or {}, "ensemble_scheduling")
        return tuple(
            text_of(step, "model_name") for each in found for step in messages(each, "step")
        )

    @property
    def can_be_killed(self) -> bool:
        """Whether its processes may be ended without a word: nothing of it would have run."""
        return self.backend == ENSEMBLE or (self.backend == "python" and not self.has_end)

    @property
    def is_stateless(self) -> bool:
        """Whether a request leaves nothing behind: no sequences, one answer each."""
        config = self.config or {}
        decoupled = messages(config, "model_transaction_policy")
        streams = any(text_of(it, "decoupled").lower() in ("true", "1", "t") for it in decoupled)
        return not streams and not messages(config, "sequence_batching")


def may_have_end(texts: Iterable[str]) -> bool:
    """Whether a model of these Python files may have a `finalize`, its own or an inherited one."""
    found = list(texts)
    return any("finalize" in it for it in found) or not any(PLAIN_CLASS.search(it) for it in found)


def default_model(folders: Sequence[ModelFolder], given: str, multi_model: bool) -> ModelFolder:
    """The model that requests without a name are for. Raises TerminalError.

    Of a single model's archive: the one that is `given`, or the only one. Of one of many: the
    ensemble, or the only one.
    """
    names = listed(it.name for it in folders)
    if not folders:
        raise TerminalError(
            "the archive has no model: it must have a folder for each, with config.pbtxt and a "
            "version folder (MODEL/config.pbtxt, MODEL/1/...)"
        )
    if given and not multi_model:
        for each in folders:
            if each.name == given:
                return each
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


def needed(chosen: ModelFolder, folders: Sequence[ModelFolder]) -> list[ModelFolder]:
    """The model and those that it calls, also through other ensembles. Raises TerminalError."""
    by_name = {it.name: it for it in folders}
    found: dict[str, ModelFolder] = {}
    left = [chosen]
    while left:
        each = left.pop(0)
        if each.name in found:
            continue
        found[each.name] = each
        for step in each.steps:
            if step not in by_name:
                raise TerminalError(
                    f"{each.name}/{CONFIG} has a step of the model {step[:MAX_SHOWN]!r}; the "
                    f"archive has {listed(by_name)}"
                )
            left.append(by_name[step])
    return list(found.values())


def listed(names: Iterable[str]) -> str:
    """Names for a message: the first ones, and how many there are beyond."""
    found = list(names)
    more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
    return ", ".join(it[:MAX_SHOWN] for it in found[:MAX_LISTED]) + more


def check_folder(folder: ModelFolder, backends: Collection[str], server: str) -> None:
    """Raise TerminalError, with model and file, where Triton could not load it.

    `backends` are those of `server`, the path of a tritonserver.
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
    if config is not None and text_of(config, "name") not in ("", name):
        raise TerminalError(
            f"{name}/{CONFIG} has the name {text_of(config, 'name')[:MAX_SHOWN]!r}; it must be the "
            f"folder's, {name!r}, or none"
        )
    if not folder.versions:
        kind = "an empty one is enough for an ensemble" if backend == ENSEMBLE else "of its files"
        raise TerminalError(f"{name} has no version folder: {name}/1 is needed, {kind}")
    held = folder.files.union(*folder.versions.values())
    if backend != ENSEMBLE and backend not in backends and f"libtriton_{backend}.so" not in held:
        raise TerminalError(
            f"{name}/{CONFIG} needs the backend {backend[:MAX_SHOWN]!r}; {server} has "
            f"{listed(sorted(backends)) or 'none'}. Install a tritonserver that has it, so that "
            "`hostelry up` finds it in PATH, or let images.toml run the image as a container"
        )
