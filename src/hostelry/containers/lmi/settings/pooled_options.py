"""Options of models that give vectors."""

from collections.abc import Mapping
from dataclasses import dataclass

from hostelry.containers.lmi.settings.option_reader import OptionReader
from hostelry.engine.pooled import POOLING_MODES

# Names of LMI, vLLM and Hugging Face -> what the model is for.
TASKS: Mapping[str, str] = {
    "auto": "auto",
    **dict.fromkeys(("generate", "text-generation"), "generate"),
    **dict.fromkeys(
        (
            "text-embedding", "text_embedding", "feature-extraction", "embed", "embedding",
            "sentence-similarity",
        ),
        "embed",
    ),
    **dict.fromkeys(
        ("classify", "text-classification", "score", "rerank", "text-ranking"), "classify"
    ),
}  # fmt: skip
LISTED_TASKS = ("feature-extraction", "sentence-similarity")


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledOptions:
    """Whether the model generates, embeds or classifies, and how it is pooled.

    None: as its files have it. With `lists_vectors` one text is answered as a list of one vector.
    """

    task: str = "auto"
    pooling: str | None = None
    normalize: bool | None = None
    lists_vectors: bool = False


def read_pooled(read: OptionReader) -> PooledOptions:
    """The options as they are given. Raises ConfigurationError."""
    task = read.choice("task", "auto", tuple(TASKS))
    return PooledOptions(
        task=TASKS[task],
        pooling=read.choice("pooling", "", POOLING_MODES) or None,
        normalize=read.flag("normalize", True) if read.text("normalize") else None,
        lists_vectors=task in LISTED_TASKS,
    )
