"""Facts of a model that gives one vector per text, as plain values without tensors."""

from collections.abc import Mapping
from typing import Literal

import msgspec

PoolingKind = Literal["embed", "classify"]
ClassActivation = Literal["softmax", "sigmoid", "identity"]
POOLING_MODES = ("cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken")


class PoolingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The form of a pooled model's vectors, and how its files ask to finish them.

    `dimension` counts the numbers of a vector: an embedding, or a logit for each of `labels`. With
    `normalize` an embedding is divided by its length. `dimensions` are the shorter lengths it was
    trained for. `any_dimensions` allows all of them. `activation` turns logits into scores.
    `lower_case` lowers texts first. A text begins with the prompt of `prompts` that its request
    names, or else with the one that `default_prompt` names.
    """

    kind: PoolingKind
    dimension: int
    normalize: bool = False
    dimensions: tuple[int, ...] = ()
    any_dimensions: bool = False
    labels: tuple[str, ...] = ()
    activation: ClassActivation = "softmax"
    lower_case: bool = False
    prompts: Mapping[str, str] = msgspec.field(default_factory=dict)
    default_prompt: str | None = None
