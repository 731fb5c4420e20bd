"""Recognise framework, version and features of a model file by its bytes. Pure.

A pickle can run code of its author, so it is never loaded. It is searched for the texts that
scikit-learn and XGBoost write into it.
"""

import bz2
import lzma
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.runtimes.framework_recipes import FRAMEWORKS

MAX_UNPACKED_BYTES = 16 * 1024 * 1024
NUMBERS = rb"([0-9]+\.[0-9]+(?:\.[0-9]+)?)"
# Between two texts, a pickle has one or two memo opcodes, and the length of the second text.
SKLEARN_VERSION = re.compile(rb"_sklearn_version.{1,12}?" + NUMBERS, re.DOTALL)
SKLEARN_MODULE = re.compile(rb"sklearn[.\n]")
XGBOOST_MODULE = re.compile(rb"xgboost[.](sklearn|core)")
FEATURES = re.compile(
    rb"n_features_in_(?:\x94|q.|r....)?(?:K(.)|M(..)|J(....))", re.DOTALL
)  # BININT1, BININT2, BININT
JSON_VERSION = re.compile(rb'"version"\s*:\s*\[\s*(\d+)\s*,\s*(\d+)')
JSON_FEATURES = re.compile(rb'"num_feature"\s*:\s*"(\d+)"')
UBJ_VERSION = re.compile(
    rb"version\[(?:#[iUIlL]\x00*.)?((?:i.|U.|I..|l....|L........){2})", re.DOTALL
)
UBJ_FEATURES = re.compile(rb"num_featureS[iUIlL]\x00*[\x01-\x0a](\d{1,10})", re.DOTALL)
TENSORFLOW_VERSION = re.compile(rb"\x2a[\x05-\x0c]([0-9]+\.[0-9]+\.[0-9]+)")
# Copied from the engine's registry, because its module loads torch. A test compares both.
DECODERS = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Gemma3ForCausalLM",
)  # fmt: skip
ENCODERS = ("Bert", "Roberta", "XLMRoberta", "DistilBert", "MPNet")
CLASSIFIER = "ForSequenceClassification"
MODULES = {
    "sklearn": "sklearn",
    "joblib": "sklearn",
    "xgboost": "xgboost",
    "torch": "pytorch",
    "torchvision": "pytorch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "transformers": "huggingface",
    "autogluon": "autogluon",
}
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ \t]+([A-Za-z_][A-Za-z0-9_]*)", re.MULTILINE)
# Other frameworks in the runtime of a framework, which code in this runtime may import.
INCLUDED = {
    "huggingface": {"pytorch", "sklearn"},
    "autogluon": {"sklearn", "xgboost", "pytorch"},
    "pytorch": {"sklearn"},
}


class ModelFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The format of a model file. If unknown, `framework` is "", and `version` None.

    For ONNX, GGUF and safetensors the framework is the name of the format.
    """

    framework: str
    version: str | None = None
    num_features: int | None = None


def model_format(name: str, content: bytes) -> ModelFormat:
    """The format of a file, by its first and last bytes, or else by its name."""
    if content[:4] == b"GGUF":
        return ModelFormat(framework="gguf")
    if name.endswith(".safetensors"):
        return ModelFormat(framework="safetensors")
    if name.endswith(".onnx"):
        return ModelFormat(framework="onnx")
    if content[:4] == b"PK\x03\x04" and name.endswith((".pt", ".pth", ".bin")):
        # A TorchScript archive contains code, but a state dict has only weights.
        return ModelFormat(framework="pytorch" if b"/code/" in content else "weights")
    if content[:4] == b"binf" or content[:1] == b"{":
        return _xgboost(content)
    if name.endswith((".joblib", ".pkl", ".pickle")) or content[:1] == b"\x80":
        return _read_pickle(unpack_joblib(content))
    return ModelFormat(framework="xgboost" if name.endswith("xgboost-model") else "")


def unpack_joblib(content: bytes) -> bytes:
    """The first bytes of the content that joblib compressed, as far as they can be read."""
    try:
        if content[:2] == b"\x1f\x8b" or (content[:1] == b"\x78" and len(content) > 1):
            return zlib.decompressobj(47).decompress(content, MAX_UNPACKED_BYTES)
        if content[:3] == b"BZh":
            return bz2.BZ2Decompressor().decompress(content, MAX_UNPACKED_BYTES)
        if content[:6] == b"\xfd7zXZ\x00" or content[:3] == b"\x5d\x00\x00":
            return lzma.LZMADecompressor().decompress(content, MAX_UNPACKED_BYTES)
    except (zlib.error, OSError, lzma.LZMAError, EOFError):
        pass
    return content


def served_version(
    framework: str, made_by: str | None, known: Sequence[str], installed: Collection[str]
) -> str:
    """Choose the runtime version for a model that version `made_by` of a framework wrote.

    It is the same version, or else the next later version, because later versions read older files.
    Without `made_by` it is the latest installed version, or else the latest known version. `known`
    and `installed` are versions such as 1.2. Raises TerminalError if all versions are older.
    """
    if made_by is None:
        here = [it for it in known if it in installed]
        return max(here or known, key=numbers)
    wanted = numbers(made_by)[:2]
    later = [it for it in known if numbers(it) >= wanted]
    if later:
        return min(later, key=numbers)
    latest = max(known, key=numbers)
    raise TerminalError(
        f"the model was written by {framework} {made_by}; the latest runtime is {latest}, and an "
        f"older one may misread it: write it again with {latest}, or say --as {framework}:{latest}"
    )


def numbers(version: str) -> tuple[int, ...]:
    """A version as a tuple of numbers, for comparisons."""
    return tuple(int(it) for it in re.findall(r"[0-9]+", version))


def _read_pickle(content: bytes) -> ModelFormat:
    by_sklearn = SKLEARN_MODULE.search(content) is not None
    by_xgboost = XGBOOST_MODULE.search(content) is not None
    found = SKLEARN_VERSION.search(content)
    version = found[1].decode() if found else None
    if by_sklearn and by_xgboost:
        return ModelFormat(framework="sklearn and xgboost", version=version)
    if by_xgboost:
        return replace(_xgboost(content), framework="xgboost")
    if by_sklearn:
        features = FEATURES.search(content)
        digits = next((it for it in features.groups() if it is not None), b"") if features else b""
        return ModelFormat(
            framework="sklearn",
            version=version,
            num_features=int.from_bytes(digits, "little") or None,
        )
    return ModelFormat(framework="")


def _xgboost(content: bytes) -> ModelFormat:
    """The format of XGBoost's JSON, UBJ or older binary file. "" as framework for other JSON."""
    if content[:4] == b"binf":
        return ModelFormat(framework="xgboost")
    if found := JSON_VERSION.search(content):
        features = JSON_FEATURES.search(content)
        return ModelFormat(
            framework="xgboost" if b'"learner"' in content else "",
            version=f"{int(found[1])}.{int(found[2])}",
            num_features=int(features[1]) if features else None,
        )
    version = None
    if found := UBJ_VERSION.search(content):
        version = _ubj_version(found[1])
    is_xgboost = b"learner" in content or b"gradient_booster" in content
    features = UBJ_FEATURES.search(content)
    return ModelFormat(
        framework="xgboost" if is_xgboost else "",
        version=version,
        num_features=int(features[1]) if features else None,
    )


def _ubj_version(content: bytes) -> str | None:
    """A version from a UBJ array of two integers, each after its type."""
    sizes = {b"i": 1, b"U": 1, b"I": 2, b"l": 4, b"L": 8}
    values: list[int] = []
    position = 0
    while len(values) < 2 and position < len(content):
        size = sizes.get(content[position : position + 1])
        if size is None:
            return None
        end = position + 1 + size
        values.append(int.from_bytes(content[position + 1 : end], "big"))
        position = end
    return ".".join(map(str, values)) if len(values) == 2 else None


class Task(Enum):
    """The kind of a model's answers, which decides the request that is shown."""

    CHAT = "chat"
    TEXT = "text"
    VECTORS = "vectors"
    CLASSES = "classes"
    UNKNOWN = "unknown"

    @property
    def is_text(self) -> bool:
        """Whether the answer is text."""
        return self in (Task.CHAT, Task.TEXT)


class HuggingFaceModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its architecture. `framework` is "" if the LLM server serves it."""

    architecture: str
    task: Task = Task.UNKNOWN
    framework: str = ""
    needs_vllm: bool = False


def read_model(
    config: Mapping[str, Any],
    texts: Mapping[str, str],
    names: Sequence[str],
    *,
    forced: bool,
) -> HuggingFaceModel:
    """The model that a config.json describes.

    With `forced` the LLM server serves the model whatever its architecture. Raises TerminalError
    if config.json names no architecture.
    """
    named = config.get("architectures") or [config.get("model_type")]
    architecture = next((it for it in named if isinstance(it, str) and it), "")
    if not architecture:
        raise TerminalError("config.json has neither architectures nor model_type")
    family = architecture.removesuffix("ForCausalLM")
    if architecture in DECODERS:
        task = Task.VECTORS if "modules.json" in names else text_task(texts, names)
        return HuggingFaceModel(architecture=architecture, task=task)
    for encoder in ENCODERS:
        if architecture in (encoder + "Model", encoder + "ForMaskedLM"):
            return HuggingFaceModel(architecture=architecture, task=Task.VECTORS)
    bases = [*ENCODERS, *(it.removesuffix("ForCausalLM") for it in DECODERS)]
    if architecture in [it + CLASSIFIER for it in bases]:
        return HuggingFaceModel(architecture=architecture, task=Task.CLASSES)
    if forced or family != architecture or architecture.endswith("ForConditionalGeneration"):
        return HuggingFaceModel(
            architecture=architecture, task=text_task(texts, names), needs_vllm=True
        )
    return HuggingFaceModel(architecture=architecture, framework="huggingface")


def text_task(texts: Mapping[str, str], names: Sequence[str]) -> Task:
    """CHAT if the model has a chat template, else TEXT."""
    has_template = any(it.startswith("chat_template") for it in names)
    return (
        Task.CHAT
        if has_template or '"chat_template"' in texts.get("tokenizer_config.json", "")
        else Task.TEXT
    )


def imported_frameworks(code: str, requirements: str) -> list[str]:
    """The frameworks that `code` imports, without frameworks in another one's runtime.

    Packages that requirements.txt installs need no separate runtime.
    """
    installed = {it.lower().replace("-", "_") for it in re.findall(r"^[\w-]+", requirements, re.M)}
    modules = [it for it in IMPORT.findall(code) if it not in installed]
    found = {MODULES[it] for it in modules if it in MODULES}
    if "joblib" in modules and "sklearn" not in modules and len(found) > 1:
        found.discard("sklearn")  # joblib also reads models of the other frameworks
    included = {it for name in found for it in INCLUDED.get(name, ())}
    return [it for it in FRAMEWORKS if it in found - included]
