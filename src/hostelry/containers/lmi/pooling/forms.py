"""Forms of answers with vectors: OpenAI's, vLLM's, Cohere's and Jina's, LMI's and TEI's.

# B texts, P numbers of a vector
"""

import base64
from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
import numpy
from numpy.typing import NDArray

from hostelry.engine.pooled import ClassActivation, PoolingFacts

Vectors = NDArray[numpy.float32]
Side = Literal["left", "right"]
_SMALLEST = 1e-12  # a vector of zeros stays one


class PooledText(msgspec.Struct, frozen=True):
    """A text, a pair of texts, or token ids as they are."""

    text: str | tuple[int, ...]
    second: str | None = None


class AnswerHead(msgspec.Struct, frozen=True, kw_only=True):
    """The values of an answer that do not come from its vectors."""

    id: str
    created: int
    model: str
    num_tokens: int

    @property
    def usage(self) -> dict[str, int]:
        """OpenAI's usage of a request that generates nothing."""
        tokens = self.num_tokens
        return {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}


class PooledForm(Protocol):
    """Writes the answer of one request."""

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """The answer by the vectors of the request's texts, in their order, as a value for JSON."""
        ...


class PooledCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request: its texts, how they are read, and the form of the answer.

    `adapters` has one name per text (None: the base model). `truncate` is the largest number of
    tokens of a text, special tokens included: -1 is the model's limit, None refuses longer texts.
    `prefix` comes before every text.
    """

    texts: tuple[PooledText, ...]
    adapters: tuple[str | None, ...]
    form: PooledForm
    model: str
    truncate: int | None = None
    side: Side = "right"
    add_special_tokens: bool = True
    prefix: str = ""


def embeddings(
    vectors_BP: Vectors, facts: PoolingFacts, *, normalize: bool | None, dimensions: int | None
) -> Vectors:
    """The first `dimensions` numbers, normalized if the request, or else the model, says so."""
    kept = vectors_BP if dimensions is None else vectors_BP[:, :dimensions]
    return unit(kept) if (facts.normalize if normalize is None else normalize) else kept


def unit(vectors_BP: Vectors) -> Vectors:
    """The vectors divided by their length."""
    lengths_B1 = numpy.linalg.norm(vectors_BP, axis=1, keepdims=True)
    divided: Vectors = vectors_BP / numpy.maximum(lengths_B1, _SMALLEST)
    return divided


def similarities(first_BP: Vectors, second_BP: Vectors) -> list[float]:
    """The cosine of each pair. A single first vector is compared with every second vector."""
    cosines: list[float] = (unit(first_BP) * unit(second_BP)).sum(axis=1).tolist()
    return cosines


def apply_activation(logits_BP: Vectors, activation: ClassActivation) -> Vectors:
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


class VectorForm(msgspec.Struct, frozen=True, kw_only=True):
    """Finished vectors: embeddings, or scores of classes. Raw vectors if `activate` is False."""

    facts: PoolingFacts
    activate: bool | None = None
    dimensions: int | None = None

    def finish(self, vectors_BP: Vectors) -> Vectors:
        """The vectors as the model's files and the request ask for them."""
        if self.facts.kind == "embed":
            return embeddings(
                vectors_BP, self.facts, normalize=self.activate, dimensions=self.dimensions
            )
        return (
            vectors_BP
            if self.activate is False
            else apply_activation(vectors_BP, self.facts.activation)
        )


class ListForm(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's list of vectors. `kind` is the object's name, and its `member` has the vector."""

    vectors: VectorForm
    in_base64: bool
    kind: str = "embedding"
    member: str = "embedding"

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        rows = self.vectors.finish(vectors_BP)
        written = [self._encode_row(row) for row in rows]
        data = [
            {"object": self.kind, "index": number, self.member: row}
            for number, row in enumerate(written)
        ]
        return {**build_list(head, data), "created": head.created, "id": head.id}

    def _encode_row(self, row: Vectors) -> Any:
        if self.in_base64:
            return base64.b64encode(row.astype("<f4").tobytes()).decode()
        return row.tolist()


class ClassesForm(msgspec.Struct, frozen=True):
    """vLLM's classes: the likeliest label and the scores of all."""

    vectors: VectorForm

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        labels = self.vectors.facts.labels
        data = [
            {
                "index": number,
                "label": labels[int(row.argmax())],
                "probs": row.tolist(),
                "num_classes": len(labels),
            }
            for number, row in enumerate(self.vectors.finish(vectors_BP))
        ]
        return {**build_list(head, data), "created": head.created, "id": head.id}


class PairScores(msgspec.Struct, frozen=True):
    """The score of each pair: by a cross-encoder, or the cosine of two embeddings.

    For a cosine the first `num_first` vectors are of the first texts, the others of the second.
    """

    vectors: VectorForm
    num_first: int

    def scores(self, vectors_BP: Vectors) -> list[float]:
        """The score of each pair."""
        if self.vectors.facts.kind == "embed":
            rows = self.vectors.finish(vectors_BP)
            return similarities(rows[: self.num_first], rows[self.num_first :])
        scores: list[float] = self.vectors.finish(vectors_BP)[:, 0].tolist()
        return scores


class ScoreForm(msgspec.Struct, frozen=True):
    """vLLM's list of scores."""

    pairs: PairScores

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        data = [
            {"index": number, "object": "score", "score": score}
            for number, score in enumerate(self.pairs.scores(vectors_BP))
        ]
        return {**build_list(head, data), "created": head.created, "id": head.id}


class RerankForm(msgspec.Struct, frozen=True, kw_only=True):
    """Cohere's and Jina's results, the best first. `top` is their number, 0 for all of them."""

    pairs: PairScores
    documents: Sequence[str]
    top: int = 0
    with_documents: bool = True

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        results = []
        for index, score in rank_scores(self.pairs.scores(vectors_BP), self.top):
            result: dict[str, Any] = {"index": index, "relevance_score": score}
            if self.with_documents:
                result["document"] = {"text": self.documents[index]}
            results.append(result)
        usage = {"prompt_tokens": head.num_tokens, "total_tokens": head.num_tokens}
        return {"id": head.id, "model": head.model, "usage": usage, "results": results}


class TeiRankForm(msgspec.Struct, frozen=True, kw_only=True):
    """TEI's results, the best first."""

    pairs: PairScores
    texts: Sequence[str]
    with_texts: bool = False

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        return [
            {"index": index, "score": score}
            | ({"text": self.texts[index]} if self.with_texts else {})
            for index, score in rank_scores(self.pairs.scores(vectors_BP), 0)
        ]


class InputsForm(msgspec.Struct, frozen=True, kw_only=True):
    """LMI's and Hugging Face's answers to `inputs`.

    An embedding is a list of numbers, and a list of inputs has a list of embeddings. Classes are an
    object for each input, its likeliest label. With `top`, a list of the likeliest labels (0: all).
    """

    vectors: VectorForm
    listed: bool
    top: int | None = None

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        rows = self.vectors.finish(vectors_BP).tolist()
        if self.vectors.facts.kind == "embed":
            return rows if self.listed else rows[0]
        labelled = [self._label_scores(row) for row in rows]
        if self.top is None:
            return [it[0] for it in labelled]
        return labelled if self.listed else labelled[0]

    def _label_scores(self, row: list[float]) -> list[dict[str, Any]]:
        labels = self.vectors.facts.labels
        return [
            {"label": labels[it], "score": score} for it, score in rank_scores(row, self.top or 0)
        ]


def rank_scores(scores: Sequence[float], top: int) -> list[tuple[int, float]]:
    """Index and score of the best `top` (0: all), the best first. Equal scores keep their order."""
    order = sorted(enumerate(scores), key=lambda it: -it[1])
    return order[:top] if top else order


def build_list(head: AnswerHead, data: list[Any]) -> dict[str, Any]:
    """OpenAI's list."""
    return {"object": "list", "data": data, "model": head.model, "usage": head.usage}
