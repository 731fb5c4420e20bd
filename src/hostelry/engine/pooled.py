"""Facts of a model that gives one vector a text, as plain values without tensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

PoolingKind = Literal["embed", "classify"]
ClassActivation = Literal["softmax", "sigmoid", "identity"]
POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingFacts:
    """What a pooled model's vectors are, and how its files ask for them to be finished.

    `dimension` counts the numbers of a vector: of an embedding, or a logit for each of `labels`.
    An embedding is divided by its length where `normalize` is set. `dimensions` are the shorter
    lengths it was trained for; `any_dimensions` allows all of them. `activation` turns logits into
    scores. Texts are put in lower case first with `lower_case`, and begin with one of `prompts`
    where a request names it, or with that of `default_prompt`.
    """

    kind: PoolingKind
    dimension: int
    normalize: bool = False
    dimensions: tuple[int, ...] = ()
    any_dimensions: bool = False
    labels: tuple[str, ...] = ()
    activation: ClassActivation = "softmax"
    lower_case: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
