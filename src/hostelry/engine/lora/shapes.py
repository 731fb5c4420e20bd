"""The linear modules an adapter may target, as the base model offers them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Site:
    """Where an update is added: a layer's fused projection (qkv, o, gate_up or down)."""

    layer: int
    projection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleShape:
    """One linear module: its dotted path in the Hugging Face model, its shape and its place.

    `out_start` is its first column in the site's fused output.
    """

    path: str
    site: Site
    in_features: int
    out_features: int
    out_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpace:
    """Every linear module of the base, in the order of computation.

    `other_paths` are modules that exist but cannot carry an adapter here (embeddings, lm_head).
    """

    modules: Sequence[ModuleShape]
    other_paths: Sequence[str]
