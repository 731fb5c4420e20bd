"""Predictions of XGBoost as AWS's container writes them, which has two servers.

That of many models writes a plain list as JSON, csv without lines, and nothing else.

With SAGEMAKER_INFERENCE_OUTPUT (predicted_label, labels, probability, probabilities, raw_score,
raw_scores, predicted_score) each answer has those; a name that the objective has not is NaN.
"""

from __future__ import annotations

import importlib
import json
import os
from typing import Any

from hostelry.containers.predictive.worker import recordio

JSON, RECORDIO = "application/json", "application/x-recordio-protobuf"
NAN = float("nan")
SCORES = ("raw_score", "raw_scores")
LABELS = ("predicted_label", "labels")
PROBABILITIES = ("probability", "probabilities")
REGRESSIONS = ("squarederror", "logistic", "gamma", "absoluteerror", "tweedie")
SELECTABLE = {
    **{f"reg:{name}": ("predicted_score",) for name in REGRESSIONS},
    "binary:logistic": LABELS + PROBABILITIES + SCORES,
    "binary:logitraw": LABELS + SCORES,
    "binary:hinge": LABELS + SCORES,
    "multi:softmax": LABELS + SCORES,
    "multi:softprob": LABELS + PROBABILITIES + SCORES,
}


class Scores:
    """Predictions, and the settings of the model that gave them."""

    def __init__(self, prediction: Any, objective: str, num_class: int) -> None:
        self.prediction = importlib.import_module("numpy").asarray(prediction)
        self.objective = objective
        self.num_class = num_class


def of_many() -> bool:
    """Whether this is the server of many models."""
    return os.environ.get("SAGEMAKER_MULTI_MODEL") == "true"


def encoded(scores: Scores, kind: str) -> bytes:
    """The answer in the type `kind`. Raises ValueError for an objective without such answers."""
    names = os.environ.get("SAGEMAKER_INFERENCE_OUTPUT")
    values = scores.prediction.tolist()
    if of_many() and kind == JSON:
        return json.dumps(values).encode()
    if names is not None and not of_many():
        keys = names.replace(" ", "").lower().split(",")
        rows = [selected(scores, keys, each) for each in scores.prediction]
        return written(rows, kind, keys).encode() if kind != RECORDIO else as_records(rows)
    if os.environ.get("SAGEMAKER_BATCH"):
        return ("\n".join(map(str, values)) + "\n").encode()  # of each type
    if of_many():
        return ",".join(map(str, values)).encode()
    if kind == RECORDIO:
        return as_records([{"score": each} for each in values])
    if kind != "text/csv":
        return written([{"score": each} for each in values], kind, ["score"]).encode()
    rows_of = [each if isinstance(each, list) else [each] for each in values]
    return "".join(",".join(map(str, row)) + "\n" for row in rows_of).encode()


def written(rows: list[dict[str, Any]], kind: str, keys: list[str]) -> str:
    """The rows as JSON, lines of JSON, or csv in the order of `keys`."""
    if kind == JSON:
        return json.dumps({"predictions": rows})
    if kind == "application/jsonlines":
        return "".join(json.dumps(row) + "\n" for row in rows)
    lines = (
        ",".join(f'"{row[key]}"' if isinstance(row[key], list) else str(row[key]) for key in keys)
        for row in rows
    )
    end = "\n" if os.environ.get("SAGEMAKER_BATCH") else ""
    return "\n".join(lines) + end


def as_records(rows: list[dict[str, Any]]) -> bytes:
    """The rows as labels of records."""
    return recordio.labels_body(
        [{name: it if isinstance(it, list) else [it] for name, it in row.items()} for row in rows]
    )


def selected(scores: Scores, keys: list[str], raw: Any) -> dict[str, Any]:
    """What is asked for of one prediction."""
    allowed = SELECTABLE.get(scores.objective)
    if allowed is None:
        raise ValueError(
            f"SAGEMAKER_INFERENCE_OUTPUT does not know the objective {scores.objective}; it must "
            f"be one of {sorted(SELECTABLE)}"
        )
    found = content(scores.objective, scores.num_class, raw)
    return {key: found[key] if key in allowed else NAN for key in keys}


def content(objective: str, num_class: int, raw: Any) -> dict[str, Any]:
    """Every value that an answer may have."""
    values = raw.tolist()
    is_rows = isinstance(values, list)
    score = max(values) if is_rows else values
    both = values if is_rows else [1.0 - values, values]
    if is_rows:
        label: Any = values.index(max(values))
    elif objective == "binary:logistic":
        label = int(values > 0.5)
    else:
        label = int(values > 0) if objective == "binary:logitraw" else values
    labels: Any = [0, 1] if objective.startswith("binary:") else list(range(num_class))
    return {
        "predicted_label": label,
        "labels": labels,
        "probability": score,
        "probabilities": both,
        "raw_score": score,
        "raw_scores": both,
        "predicted_score": score,
    }
