"""Choice of a model endpoint's variant: TargetVariant, else by weight."""

from collections.abc import Sequence
from itertools import accumulate

from hostelry.domain.routes import VariantRoute


def named_variant(variants: Sequence[VariantRoute], name: str) -> VariantRoute | None:
    """The variant that TargetVariant names, whatever its weight; None where there is none."""
    return next((variant for variant in variants if variant.name == name), None)


def choose_variant(variants: Sequence[VariantRoute], draw: float) -> VariantRoute | None:
    """The variant whose share of the weights `draw` falls into; None where none has a ready copy.

    variants                          shares
    without a ready copy              none: theirs goes to the others
    with one, and a weight above 0    by weight
    with one, all weights 0           equal

    Args:
        variants: the endpoint's variants.
        draw: a uniform random number in [0, 1).

    Source: SageMaker API reference, ProductionVariant.InitialVariantWeight.
    """
    ready = [variant for variant in variants if variant.copies]
    if len(ready) <= 1:
        return ready[0] if ready else None
    weights = [max(variant.weight, 0.0) for variant in ready]
    if not sum(weights):
        weights = [1.0] * len(ready)
    mark = draw * sum(weights)
    for variant, upper in zip(ready, accumulate(weights), strict=True):
        if mark < upper:
            return variant
    return next(v for v, weight in zip(reversed(ready), reversed(weights), strict=True) if weight)
