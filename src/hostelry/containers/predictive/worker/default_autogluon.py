"""AutoGluon without functions of its own: the predictor of a table, csv and JSON in and out.

AWS's container has no default and needs the author's model_fn; here the folder's one predictor
answers what it predicts for each row.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
import sys
from typing import Any

from hostelry.containers.predictive.worker.refusal import (
    BAD_REQUEST,
    BODY_ERRORS,
    UNSUPPORTED_TYPE,
    first_accepted,
    media_type,
    refusal,
)

csv.field_size_limit(sys.maxsize)  # the body's limit bounds a cell

JSON, CSV = "application/json", "text/csv"
PREDICTOR = "predictor.pkl"


class AutoGluonHandler:
    """The functions of AutoGluon's tabular predictors."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The predictor of the model folder, or of its one folder that has one."""
        tabular = importlib.import_module("autogluon.tabular")
        folders = [model_dir, *sorted(it.path for it in os.scandir(model_dir) if it.is_dir())]
        found = [it for it in folders if os.path.isfile(os.path.join(it, PREDICTOR))]
        if not found:
            raise ValueError(
                "without model_fn the model's folder, or one in it, must be that of a "
                f"TabularPredictor; none has {PREDICTOR}"
            )
        return tabular.TabularPredictor.load(found[0])

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The rows of the body."""
        kind = media_type(content_type)
        if kind not in (JSON, CSV):
            raise refusal(
                UNSUPPORTED_TYPE,
                f"the content type is {str(content_type)[:200]!r}; it must be {JSON} or {CSV}",
            )
        try:
            text = input_data if isinstance(input_data, str) else bytes(input_data).decode("utf-8")
            rows = json.loads(text) if kind == JSON else rows_of(text)
        except (csv.Error, *BODY_ERRORS) as error:
            raise refusal(BAD_REQUEST, f"the body cannot be read as {kind}: {error}") from None
        return Rows(rows, kind)

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """What the predictor gives for each row."""
        if not isinstance(data, Rows):  # of the author's own input_fn
            return model.predict(data)
        try:
            return model.predict(data.frame(list(model.features())))
        except (KeyError, *BODY_ERRORS) as error:
            raise refusal(BAD_REQUEST, f"the predictor cannot take the body: {error}") from None

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the asked type, and the type."""
        kind = first_accepted(accept, (JSON, CSV))
        if hasattr(prediction, "to_numpy"):
            prediction = prediction.to_numpy()
        encoder = importlib.import_module("sagemaker_inference.encoder")
        return encoder.encode(prediction, kind), kind


def rows_of(text: str) -> list[list[str]]:
    """The rows of csv that have a cell."""
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


class Rows:
    """The rows of a body: lists, or objects by column; csv may begin with the columns' names."""

    def __init__(self, rows: Any, kind: str) -> None:
        self._rows = rows
        self._kind = kind

    def frame(self, features: list[str]) -> Any:
        """The table with the model's columns. Raises ValueError."""
        pandas = importlib.import_module("pandas")
        rows, names = self._rows, features
        if not isinstance(rows, list) or not rows:
            raise ValueError("it must be rows, and has none")
        if self._kind == CSV and set(features).issubset(rows[0]):
            names, rows = rows[0], rows[1:]
        if isinstance(rows[0] if rows else None, dict):
            table = pandas.DataFrame(rows)
        else:
            table = pandas.DataFrame(rows, columns=names)
        if self._kind == CSV:  # what reads as a number is one
            text = io.StringIO()
            table.to_csv(text, index=False)
            table = pandas.read_csv(io.StringIO(text.getvalue()))
        return table
