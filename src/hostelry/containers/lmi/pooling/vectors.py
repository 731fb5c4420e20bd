"""From a model's raw vectors to embeddings, similarities and scores of classes.

# B texts, P numbers of a vector
"""

import numpy

from hostelry.containers.lmi.pooling.call import Vectors
from hostelry.engine.pooled import ClassActivation, PoolingFacts

_SMALLEST = 1e-12  # a vector of zeros stays one


def embeddings(
    vectors_BP: Vectors, facts: PoolingFacts, *, normalize: bool | None, dimensions: int | None
) -> Vectors:
    """The first `dimensions` numbers, divided by their length where asked, or by the model."""
    kept = vectors_BP if dimensions is None else vectors_BP[:, :dimensions]
    return unit(kept) if (facts.normalize if normalize is None else normalize) else kept


def unit(vectors_BP: Vectors) -> Vectors:
    """The vectors divided by their length."""
    lengths_B1 = numpy.linalg.norm(vectors_BP, axis=1, keepdims=True)
    divided: Vectors = vectors_BP / numpy.maximum(lengths_B1, _SMALLEST)
    return divided


def similarities(first_BP: Vectors, second_BP: Vectors) -> list[float]:
    """The cosine of each pair; one first vector is compared with every second one."""
    cosines: list[float] = (unit(first_BP) * unit(second_BP)).sum(axis=1).tolist()
    return cosines


def activated(logits_BP: Vectors, activation: ClassActivation) -> Vectors:
    """Scores of classes."""
    if activation == "identity":
        return logits_BP
    wide_BP = logits_BP.astype(numpy.float64)
    if activation == "sigmoid":
        scores = numpy.exp(-numpy.logaddexp(0.0, -wide_BP))
    else:
        powers = numpy.exp(wide_BP - wide_BP.max(axis=1, keepdims=True))
        scores = powers / powers.sum(axis=1, keepdims=True)
    return scores.astype(numpy.float32)
