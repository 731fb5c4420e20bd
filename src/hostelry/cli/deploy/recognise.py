"""Recognise the kind of a source by its files. Pure.

    the source has                                   kind
    -----------------------------------------------  --------------------------------------------
    graph.yaml                                       a graph of models
    MODEL/config.pbtxt                               a repository of Triton
    inference.py or code/inference.py                code, by the framework that it imports
    config.json with architectures, safetensors      a Hugging Face model: the LLM server, or
                                                     transformers' pipeline
    NAME/1/saved_model.pb                            TensorFlow
    predictor.pkl and learner.pkl                    AutoGluon
    one file of scikit-learn, XGBoost, TorchScript   this framework

If several kinds match, or none, the error lists the files. Then --as decides.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.json import decode
from hostelry.cli.deploy.model_formats import (
    ModelFormat,
    Task,
    imported_frameworks,
    model_format,
    read_model,
    served_version,
)
from hostelry.cli.deploy.source import Found, Origin
from hostelry.runtimes.framework_recipes import FRAMEWORKS
from hostelry.runtimes.recipes import known_versions

MAX_NAMED = 8
CODE_NAMES = ("inference.py", "code/inference.py")


class DeployKind(Enum):
    """The kinds of sources. --as takes a value, or a framework with its version."""

    LLM = "llm"
    FRAMEWORK = "framework"
    TRITON = "triton"
    GRAPH = "graph"
    IMAGE = "image"


AS_NAMES = ("llm", "triton", "graph", *FRAMEWORKS)


class Recognised(msgspec.Struct, frozen=True, kw_only=True):
    """A recognised source: its runtime, and its description.

    `framework` and `version` name the runtime. `code_folder` is the folder of inference.py within
    the model's folder, or None if the server searches it. `config` is a Hugging Face model's
    config.json. With `needs_vllm` our own engine cannot read the model.
    """

    kind: DeployKind
    title: str
    framework: str = ""
    version: str = ""
    code_folder: str | None = None
    task: Task | None = None
    num_features: int | None = None
    config: Mapping[str, Any] = msgspec.field(default_factory=dict)
    needs_vllm: bool = False
    notes: tuple[str, ...] = ()

    @property
    def runtime(self) -> str:
        """The runtime of its server, as `hostelry runtimes` names it, or ""."""
        if self.kind is DeployKind.FRAMEWORK:
            return f"{self.framework}:{self.version}"
        return "triton" if self.kind is DeployKind.TRITON else "vllm" if self.needs_vllm else ""

    @property
    def has_adapters(self) -> bool:
        """Whether it can have LoRA adapters."""
        return self.task is not None and self.task.is_text and not self.needs_vllm


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """The state of this machine: folders of installed runtimes."""

    runtimes: Collection[str] = ()

    def versions(self, framework: str) -> list[str]:
        """The installed versions of a framework."""
        split = [it.partition("-") for it in self.runtimes]
        return [version for name, _, version in split if name == framework and version]


def recognise(found: Found, given_kind: str | None, here: Here) -> Recognised:
    """Recognise the source. Raises TerminalError if it is unknown, ambiguous or not supported.

    `given_kind` is --as: llm, triton, graph, or a framework with or without its version.
    """
    if found.place is Origin.IMAGE:
        return Recognised(kind=DeployKind.IMAGE, title=f"container image {found.given}")
    if not found.files:
        raise TerminalError(f"{found.given} is empty: there is nothing to deploy")
    if given_kind is not None:
        return _as_given(found, given_kind, here)
    if "adapter_config.json" in found.names and "config.json" not in found.names:
        raise TerminalError(
            f"{found.given} is a LoRA adapter: deploy its base model, and name this folder with "
            "--adapters"
        )
    signs = {name: sign for name, sign in SIGNS.items() if sign(found)}
    names = list(signs)
    if "code" in signs and not signs.keys() & {"graph", "triton"}:
        names = ["code"]  # the code loads the other files
    if len(names) > 1:
        raise TerminalError(
            f"{found.given} may be {' or '.join(WORDS[it] for it in names)}: say which with --as "
            f"{' or --as '.join(AS_OF.get(it, 'FRAMEWORK') for it in names)}"
        )
    if not names:
        raise unknown(found)
    return READ[names[0]](found, here)


def unknown(found: Found) -> TerminalError:
    """The error for an unknown source. Names the files that were found and expected."""
    shown = ", ".join(found.names[:MAX_NAMED])
    more = len(found.names) - MAX_NAMED
    rest = f" and {more} more" if more > 0 else ""
    if any(it.endswith(".gguf") for it in found.names):
        return TerminalError(
            f"{found.given} has {shown}{rest}: GGUF is not read. Give the model's Hugging Face "
            "folder with safetensors, or write one with transformers (from_pretrained with "
            "gguf_file=, then save_pretrained)"
        )
    if any(it.endswith(".onnx") for it in found.names):
        return TerminalError(
            f"{found.given} has {shown}{rest}: no server here reads ONNX by itself. Two ways: a "
            "folder with inference.py whose requirements.txt names onnxruntime; or a repository "
            "of Triton (MODEL/config.pbtxt, MODEL/1/model.onnx), where a tritonserver with the "
            "backend onnxruntime is in PATH (the runtime that `hostelry runtimes install triton` "
            "makes has the Python backend alone)"
        )
    if "config.json" in found.names:
        return TerminalError(
            f"{found.given} has {shown}{rest}, and no *.safetensors: weights of a Hugging Face "
            "model are read from safetensors only. Write them with save_pretrained, or say --as "
            "huggingface"
        )
    what = (
        "is not a known model file"
        if found.place is Origin.FILE
        else (f"has {shown}{rest}, of which none is known")
    )
    return TerminalError(
        f"{found.given} {what}. Looked for: graph.yaml, "
        "MODEL/config.pbtxt, inference.py, config.json with *.safetensors, NAME/1/saved_model.pb, "
        "AutoGluon's predictor.pkl, and one file of scikit-learn (.joblib, .pkl), XGBoost (.json, "
        f".ubj, xgboost-model) or TorchScript (.pt). Say --as {', '.join(AS_NAMES)} "
        "(FRAMEWORK:VERSION as sklearn:1.2)"
    )


def formats(found: Found) -> dict[str, ModelFormat]:
    """The format of each possible model file, by name."""
    return {name: model_format(name, content) for name, content in sorted(found.heads.items())}


def _as_given(found: Found, given: str, here: Here) -> Recognised:
    framework, _, version = given.partition(":")
    if framework in FRAMEWORKS:
        code = _code_folder(found)
        known = known_versions(framework)
        if version and version not in known:
            raise UsageError(f"--as is {given}; the runtimes of {framework} are {', '.join(known)}")
        mine = [it for it in formats(found).values() if it.framework == framework]
        made_by = mine[0].version if len(mine) == 1 and not version else None
        return Recognised(
            kind=DeployKind.FRAMEWORK,
            title=f"a model of {framework}, as --as says",
            framework=framework,
            version=version or served_version(framework, made_by, known, here.versions(framework)),
            code_folder=code,
            num_features=mine[0].num_features if len(mine) == 1 and code is None else None,
        )
    if given == "llm":
        return _hugging_face(found, here, forced=True)
    if given in ("graph", "triton"):
        return READ[given](found, here)
    raise UsageError(f"--as is {given!r}; it must be one of {', '.join(AS_NAMES)}")


def _graph(found: Found, _: Here) -> Recognised:
    return Recognised(kind=DeployKind.GRAPH, title="a graph of models (graph.yaml)")


def _triton(found: Found, _: Here) -> Recognised:
    models = sorted({it.split("/")[0] for it in found.names if it.endswith("/config.pbtxt")})
    return Recognised(
        kind=DeployKind.TRITON, title=f"a repository of Triton ({', '.join(models[:MAX_NAMED])})"
    )


def _hugging_face(found: Found, here: Here, *, forced: bool = False) -> Recognised:
    config = read_json(found, "config.json")
    model = read_model(config, found.texts, found.names, forced=forced)
    if model.framework:
        versions = known_versions(model.framework)
        version = served_version(model.framework, None, versions, here.versions(model.framework))
        return Recognised(
            kind=DeployKind.FRAMEWORK,
            title=f"a Hugging Face model ({model.architecture})",
            framework=model.framework,
            version=version,
            task=Task.UNKNOWN,
            notes=(f"{model.architecture} is served by a pipeline of transformers",),
        )
    notes = []
    if model.needs_vllm:
        if "vllm" not in here.runtimes:
            raise TerminalError(
                f"the LLM server's own engine does not read {model.architecture}, and vLLM is not "
                "installed: hostelry runtimes install vllm"
            )
        notes.append(f"{model.architecture} is served by vLLM")
    return Recognised(
        kind=DeployKind.LLM,
        title=f"a Hugging Face model ({model.architecture})",
        task=model.task,
        config=config,
        needs_vllm=model.needs_vllm,
        notes=tuple(notes),
    )


def _code(found: Found, here: Here) -> Recognised:
    folder = _code_folder(found)
    assert folder is not None, "there is an inference.py"
    entry = "inference.py" if folder == "" else f"{folder}/inference.py"
    below = f"{folder}/" if folder else ""
    frameworks = imported_frameworks(
        found.texts.get(entry, ""), found.texts.get(f"{below}requirements.txt", "")
    )
    models = {it.framework: it for it in formats(found).values() if it.framework in FRAMEWORKS}
    candidates = frameworks or sorted(models)
    if len(candidates) > 1:
        raise TerminalError(
            f"{entry} of {found.given} uses {' and '.join(candidates)}: say whose runtime it runs "
            f"in with --as {' or --as '.join(candidates)}"
        )
    framework = candidates[0] if candidates else "sklearn"
    made_by = models[framework].version if framework in models else None
    version = served_version(
        framework, made_by, known_versions(framework), here.versions(framework)
    )
    why = f"it uses {framework}" if candidates else "it names no framework; the smallest runtime"
    return Recognised(
        kind=DeployKind.FRAMEWORK,
        title=f"a model with its own code ({entry})",
        framework=framework,
        version=version,
        code_folder=folder,
        notes=(f"runs in {framework}:{version}: {why}",),
    )


def _tensorflow(found: Found, here: Here) -> Recognised:
    return _recognise_framework("tensorflow", "a SavedModel of TensorFlow", here)


def _autogluon(found: Found, here: Here) -> Recognised:
    return _recognise_framework("autogluon", "a predictor of AutoGluon", here)


def _recognise_framework(framework: str, title: str, here: Here) -> Recognised:
    version = served_version(framework, None, known_versions(framework), here.versions(framework))
    return Recognised(kind=DeployKind.FRAMEWORK, title=title, framework=framework, version=version)


def _model_file(found: Found, here: Here) -> Recognised:
    served = {name: it for name, it in formats(found).items() if it.framework}
    kinds = sorted({it.framework for it in served.values()})
    if len(kinds) > 1 or kinds == ["sklearn and xgboost"]:
        named = ", ".join(f"{name} ({it.framework})" for name, it in served.items())
        raise TerminalError(
            f"{found.given} has {named}: say whose runtime serves it with --as sklearn:VERSION or "
            "--as xgboost:VERSION, and add an inference.py where it needs both"
        )
    framework = kinds[0]
    if framework == "sklearn" and len(served) > 1:
        raise TerminalError(
            f"{found.given} has {', '.join(served)}: without inference.py scikit-learn's server "
            "loads one file; give that file, or add an inference.py"
        )
    if framework not in FRAMEWORKS:
        raise unknown(found) if framework in ("onnx", "gguf") else _weights_alone(found, served)
    name, one = next(iter(served.items()))
    known = known_versions(framework)
    version = served_version(framework, one.version, known, here.versions(framework))
    wrote = f" {one.version}" if one.version else ""
    notes = []
    if one.version is None:
        notes.append(f"{name} does not say which {framework} wrote it: --as {framework}:VERSION")
    elif not one.version.startswith(version):
        notes.append(
            f"written by {framework} {one.version}, served by {version}, the next runtime there is"
        )
    return Recognised(
        kind=DeployKind.FRAMEWORK,
        title=f"a model of {framework}{wrote} ({name})",
        framework=framework,
        version=version,
        num_features=one.num_features,
        notes=tuple(notes),
    )


def _weights_alone(found: Found, served: Mapping[str, ModelFormat]) -> TerminalError:
    return TerminalError(
        f"{found.given} has weights alone ({', '.join(served)}), and nothing that says how to "
        "compute with them: add config.json (a Hugging Face folder), save the model as TorchScript "
        "(torch.jit.script(model).save), or add an inference.py"
    )


def _code_folder(found: Found) -> str | None:
    """The folder of inference.py below the source. None without such a file."""
    name = next((it for it in reversed(CODE_NAMES) if it in found.names), None)
    return None if name is None else name.rpartition("/")[0]


def read_json(found: Found, name: str) -> Mapping[str, Any]:
    """The JSON object in a file of the source. Raises TerminalError if the file is invalid."""
    text = found.texts.get(name)
    if text is None:
        raise TerminalError(f"{found.given} has no {name} that can be read (at most 4 MiB)")
    try:
        return decode(text.encode(), dict[str, Any])
    except ValueError as error:
        raise TerminalError(f"{name} of {found.given} is not a JSON object: {error}") from None


def _has(*suffixes: str) -> Callable[[Found], bool]:
    return lambda found: any(it.endswith(suffixes) for it in found.names)


def _is_saved_model(found: Found) -> bool:
    parts = [it.split("/") for it in found.names]
    return any(it[-1] == "saved_model.pb" and len(it) > 1 and it[-2].isdigit() for it in parts)


def _is_hugging_face(found: Found) -> bool:
    top = [it for it in found.names if "/" not in it]
    return "config.json" in top and any(it.endswith(".safetensors") for it in top)


def _is_autogluon(found: Found) -> bool:
    folders = {it.rpartition("/")[0] for it in found.names if it.endswith("predictor.pkl")}
    return any(f"{it}/learner.pkl".lstrip("/") in found.names for it in folders)


def _is_model_file(found: Found) -> bool:
    if _is_hugging_face(found) or _is_autogluon(found) or _is_saved_model(found):
        return False
    if "config.json" in found.names or any(it.endswith("config.pbtxt") for it in found.names):
        return False
    return any(it.framework for it in formats(found).values())


SIGNS: Mapping[str, Callable[[Found], bool]] = {
    "graph": lambda found: "graph.yaml" in found.names,
    "triton": lambda found: any(
        name.endswith("config.pbtxt") and name.count("/") <= 1 for name in found.names
    ),
    "code": lambda found: _code_folder(found) is not None,
    "hugging face": _is_hugging_face,
    "tensorflow": _is_saved_model,
    "autogluon": _is_autogluon,
    "file": _is_model_file,
}
WORDS = {
    "graph": "a graph (graph.yaml)",
    "triton": "a repository of Triton (config.pbtxt)",
    "code": "a model with its own code (inference.py)",
    "hugging face": "a Hugging Face model (config.json)",
    "tensorflow": "a SavedModel of TensorFlow",
    "autogluon": "a predictor of AutoGluon",
    "file": "a model file",
}
AS_OF = {
    "graph": "graph",
    "triton": "triton",
    "hugging face": "llm",
    "tensorflow": "tensorflow",
    "autogluon": "autogluon",
}
READ: Mapping[str, Callable[[Found, Here], Recognised]] = {
    "graph": _graph,
    "triton": _triton,
    "code": _code,
    "hugging face": _hugging_face,
    "tensorflow": _tensorflow,
    "autogluon": _autogluon,
    "file": _model_file,
}
