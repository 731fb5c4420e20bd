"""Answers of the routes for vectors: OpenAI's, vLLM's, Cohere's and Jina's, LMI's and TEI's forms.

# B texts, P numbers of a vector
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.containers.lmi.pooling.call import AnswerHead, Vectors
from hostelry.containers.lmi.pooling.vectors import activated, embeddings, similarities
from hostelry.engine.pooled import PoolingFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorForm:
    """Finished vectors: embeddings, or scores of classes; raw ones where `activate` is False."""

    facts: PoolingFacts
    activate: bool | None = None
    dimensions: int | None = None

    def finished(self, vectors_BP: Vectors) -> Vectors:
        """The vectors as the model's files and the request ask for them."""
        if self.facts.kind == "embed":
            return embeddings(
                vectors_BP, self.facts, normalize=self.activate, dimensions=self.dimensions
            )
        return (
            vectors_BP if self.activate is False else activated(vectors_BP, self.facts.activation)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListForm:
    """OpenAI's list of vectors; `kind` is the object's name, and its `member` has the vector."""

    vectors: VectorForm
    in_base64: bool
    kind: str = "embedding"
    member: str = "embedding"

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        rows = self.vectors.finished(vectors_BP)
        written = [self._written(row) for row in rows]
        data = [
            {"object": self.kind, "index": number, self.member: row}
            for number, row in enumerate(written)
        ]
        return {**listed(head, data), "created": head.created, "id": head.id}

    def _written(self, row: Vectors) -> Any:
        if self.in_base64:
            return base64.b64encode(row.astype("<f4").tobytes()).decode()
        return row.tolist()


@dataclass(frozen=True, slots=True)
class ClassesForm:
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
            for number, row in enumerate(self.vectors.finished(vectors_BP))
        ]
        return {**listed(head, data), "created": head.created, "id": head.id}


@dataclass(frozen=True, slots=True)
class PairScores:
    """The score of each pair: by a cross-encoder, or the cosine of two embeddings.

    For a cosine the first `num_first` vectors are of the first texts, the others of the second.
    """

    vectors: VectorForm
    num_first: int

    def scores(self, vectors_BP: Vectors) -> list[float]:
        """One for each pair."""
        if self.vectors.facts.kind == "embed":
            rows = self.vectors.finished(vectors_BP)
            return similarities(rows[: self.num_first], rows[self.num_first :])
        scores: list[float] = self.vectors.finished(vectors_BP)[:, 0].tolist()
        return scores


@dataclass(frozen=True, slots=True)
class ScoreForm:
    """vLLM's list of scores."""

    pairs: PairScores

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        data = [
            {"index": number, "object": "score", "score": score}
            for number, score in enumerate(self.pairs.scores(vectors_BP))
        ]
        return {**listed(head, data), "created": head.created, "id": head.id}


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankForm:
    """Cohere's and Jina's results, the best first; `top` 0: all of them."""

    pairs: PairScores
    documents: Sequence[str]
    top: int = 0
    with_documents: bool = True

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        results = []
        for index, score in ranked(self.pairs.scores(vectors_BP), self.top):
            result: dict[str, Any] = {"index": index, "relevance_score": score}
            if self.with_documents:
                result["document"] = {"text": self.documents[index]}
            results.append(result)
        usage = {"prompt_tokens": head.num_tokens, "total_tokens": head.num_tokens}
        return {"id": head.id, "model": head.model, "usage": usage, "results": results}


@dataclass(frozen=True, slots=True, kw_only=True)
class TeiRankForm:
    """TEI's results, the best first."""

    pairs: PairScores
    texts: Sequence[str]
    with_texts: bool = False

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        return [
            {"index": index, "score": score}
            | ({"text": self.texts[index]} if self.with_texts else {})
            for index, score in ranked(self.pairs.scores(vectors_BP), 0)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputsForm:
    """LMI's and Hugging Face's answers to `inputs`.

    An embedding is a list of numbers, of a list of inputs a list of these. Classes are an object
    for each input, its likeliest label; with `top` a list of the likeliest for each (0: all).
    """

    vectors: VectorForm
    listed: bool
    top: int | None = None

    def answer(self, vectors_BP: Vectors, head: AnswerHead) -> Any:
        """See PooledForm."""
        rows = self.vectors.finished(vectors_BP).tolist()
        if self.vectors.facts.kind == "embed":
            return rows if self.listed else rows[0]
        labelled = [self._labelled(row) for row in rows]
        if self.top is None:
            return [it[0] for it in labelled]
        return labelled if self.listed else labelled[0]

    def _labelled(self, row: list[float]) -> list[dict[str, Any]]:
        labels = self.vectors.facts.labels
        return [{"label": labels[it], "score": score} for it, score in ranked(row, self.top or 0)]


def ranked(scores: Sequence[float], top: int) -> list[tuple[int, float]]:
    """Index and score of the best `top` (0: all), the best first, of equal ones the first."""
    order = sorted(enumerate(scores), key=lambda it: -it[1])
    return order[:top] if top else order


def listed(head: AnswerHead, data: list[Any]) -> dict[str, Any]:
    """OpenAI's list."""
    return {"object": "list", "data": data, "model": head.model, "usage": head.usage}
