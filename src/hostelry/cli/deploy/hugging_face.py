"""The server of a Hugging Face model, by its config.json. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hostelry.base.errors import TerminalError

# Those of the engine's registry; named here since that loads torch. A test holds them equal.
DECODERS = (
    "LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM",
    "Gemma3ForCausalLM",
)  # fmt: skip
ENCODERS = ("Bert", "Roberta", "XLMRoberta", "DistilBert", "MPNet")
CLASSIFIER = "ForSequenceClassification"


class Task(Enum):
    """What a model answers, which decides the request that is shown for it."""

    CHAT = "chat"
    TEXT = "text"
    VECTORS = "vectors"
    CLASSES = "classes"
    UNKNOWN = "unknown"

    @property
    def is_text(self) -> bool:
        """Whether the answer is text."""
        return self in (Task.CHAT, Task.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class HuggingFaceModel:
    """A model by its architecture; `framework` "" where the LLM server serves it."""

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

    `forced`: the LLM server is to serve it whatever its architecture. Raises TerminalError where
    config.json names no architecture.
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
    """CHAT where the model has a chat template, else TEXT."""
    has_template = any(it.startswith("chat_template") for it in names)
    return (
        Task.CHAT
        if has_template or '"chat_template"' in texts.get("tokenizer_config.json", "")
        else Task.TEXT
    )
