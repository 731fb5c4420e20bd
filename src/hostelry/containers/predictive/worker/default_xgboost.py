"""Default functions of XGBoost: the algorithm mode of AWS's container.

Every file of the model folder is a model: XGBoost's own JSON, UBJ or older binary, or a pickle. If
there are several, the answer is their mean, or for class numbers their vote
(SAGEMAKER_INFERENCE_ENSEMBLE). Bodies are csv, libsvm with unchanged indices, or
recordio-protobuf.

AWS's container has two servers. The server of many models writes a plain list as JSON, csv without
lines, and no other type. In the other server, SAGEMAKER_INFERENCE_OUTPUT (predicted_label, labels,
probability, probabilities, raw_score, raw_scores, predicted_score) names the parts of each answer.
A part that the objective lacks is NaN.
"""

from __future__ import annotations

import csv
import importlib
import inspect
import json
import os
import pickle
import struct
from types import MappingProxyType
from typing import Any

from hostelry.containers.predictive.worker import recordio
from hostelry.containers.predictive.worker.bodies import (
    BAD_REQUEST,
    BODY_ERRORS,
    CSV,
    JSON,
    JSON_LINES,
    LIBSVM,
    NPY,
    RECORDIO,
    UNSUPPORTED_TYPE,
    X_LIBSVM,
    choose_accepted,
    media_type,
    read_features,
    read_line,
    read_rows,
    refusal,
    to_sparse_matrix,
    to_text,
    unsupported_type,
)

ACCEPTED = (CSV, JSON, JSON_LINES, RECORDIO)
MULTI_MODEL_ACCEPTED = (JSON, CSV)
NAMES = {
    "csv": CSV, CSV: CSV, "libsvm": LIBSVM, LIBSVM: LIBSVM, X_LIBSVM: LIBSVM, "": LIBSVM,
    "recordio-protobuf": RECORDIO, RECORDIO: RECORDIO,
}  # fmt: skip
VOTED = ("multi:softmax", "binary:hinge")
PICKLE_START = b"\x80"
# The start of XGBoost's binary form: base score, features, classes, and bytes that are not read.
BINARY_START = b"binf"
MODEL_PARAMETERS = struct.Struct("<fIi124x")
NAME_LENGTH = struct.Struct("<Q")

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


class Boosters:
    """The loaded models and the settings of the first."""

    def __init__(self, boosters: list[Any]) -> None:
        self.boosters = boosters
        self.objective, self.num_class, self.num_features = read_settings(boosters[0])

    def predict(self, matrix: Any) -> Any:
        """The models' joint prediction."""
        numpy = importlib.import_module("numpy")
        predictions = [predict(booster, matrix) for booster in self.boosters]
        if len(predictions) == 1:
            return predictions[0]
        if self.objective in VOTED:
            columns = numpy.stack(predictions, axis=1)
            return numpy.array([find_most_frequent(row) for row in columns])
        return numpy.mean(predictions, axis=0)


class XGBoostHandler:
    """The functions of XGBoost models.

    `execution_parameters` are the values of AWS's algorithm mode. None is the number of workers.
    """

    execution_parameters = MappingProxyType(
        {"MaxConcurrentTransforms": None, "BatchStrategy": "MULTI_RECORD"}
    )

    @property
    def default_accept(self) -> str:
        """The answer's type if neither the client nor a variable names a type."""
        return JSON if is_multi_model() else CSV

    def default_model_fn(self, model_dir: str, context: Any = None) -> Boosters:
        """Every model file of the folder."""
        names = sorted(
            name
            for name in os.listdir(model_dir)
            if os.path.isfile(os.path.join(model_dir, name)) and not name.startswith(".")
        )
        if not names:
            raise ValueError("the model's folder has no file; it must hold an XGBoost model")
        if os.environ.get("SAGEMAKER_INFERENCE_ENSEMBLE", "true") != "true":
            names = names[:1]
        return Boosters([load_booster(os.path.join(model_dir, name)) for name in names])

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The body as a DMatrix."""
        kind = NAMES.get(media_type(content_type))
        if kind is None:
            raise unsupported_type(content_type, f"{CSV}, {LIBSVM}, {X_LIBSVM} or {RECORDIO}")
        try:
            rows = READERS[kind](input_data)
            return importlib.import_module("xgboost").DMatrix(rows)
        except BODY_ERRORS as error:
            raise refusal(UNSUPPORTED_TYPE, f"the body cannot be read as {kind}: {error}") from None

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The models' prediction for the rows."""
        if not isinstance(model, Boosters):  # from the author's model_fn
            return model.predict(data, validate_features=False)
        features, columns = model.num_features, data.num_col()
        if columns > features + 1:
            raise refusal(
                BAD_REQUEST, f"a row has {columns} features; the model was trained with {features}"
            )
        xgboost = importlib.import_module("xgboost")
        try:
            prediction = model.predict(data)
        except (ValueError, xgboost.core.XGBoostError) as error:
            raise refusal(
                BAD_REQUEST,
                f"the model cannot take the body: {get_message(error)} (its rows have {columns} "
                f"features, the model was trained with {features})",
            ) from None
        return Scores(prediction, model.objective, model.num_class)

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the accepted type, and the type."""
        if not isinstance(prediction, Scores):  # from the author's functions
            encoder = importlib.import_module("sagemaker_inference.encoder")
            kind = choose_accepted(accept, (JSON, CSV, NPY))
            return encoder.encode(prediction, kind), kind
        if is_multi_model():
            kind = choose_accepted(accept, MULTI_MODEL_ACCEPTED, UNSUPPORTED_TYPE)
        else:
            kind = choose_accepted(accept, ACCEPTED)
        return encode_scores(prediction, kind), kind


def read_settings(booster: Any) -> tuple[str, int, int]:
    """A booster's objective, number of classes and number of features."""
    if not hasattr(booster, "save_config"):
        return read_binary_settings(bytes(booster.save_raw()))
    learner = json.loads(booster.save_config())["learner"]
    parameters = learner["learner_model_param"]
    classes, features = parameters.get("num_class", "0"), parameters["num_feature"]
    return str(learner["objective"]["name"]), int(classes), int(features)


def read_binary_settings(raw: bytes) -> tuple[str, int, int]:
    """The same from the binary form of a model, for XGBoost before 1.0.

    Raises ValueError if the model has another form. Source: LearnerModelParam in src/learner.cc.
    """
    start = len(BINARY_START) if raw.startswith(BINARY_START) else 0
    name_at = start + MODEL_PARAMETERS.size + NAME_LENGTH.size
    if len(raw) < name_at:
        raise ValueError(f"the binary form of the model has {len(raw)} bytes only")
    _, num_features, num_class = MODEL_PARAMETERS.unpack_from(raw, start)
    (length,) = NAME_LENGTH.unpack_from(raw, name_at - NAME_LENGTH.size)
    return raw[name_at : name_at + length].decode("ascii"), num_class, num_features


def load_booster(path: str) -> Any:
    """The booster of a file. Raises ValueError with the file's name."""
    xgboost = importlib.import_module("xgboost")
    with open(path, "rb") as file:
        is_pickle = file.read(1) == PICKLE_START
    try:
        if is_pickle:
            with open(path, "rb") as file:
                model = pickle.load(file)  # runs the author's code
            return model.get_booster() if hasattr(model, "get_booster") else check_booster(model)
        booster = xgboost.Booster()
        booster.load_model(path)
    except (xgboost.core.XGBoostError, pickle.UnpicklingError, EOFError, *BODY_ERRORS) as error:
        raise ValueError(
            f"{os.path.basename(path)} cannot be loaded: {get_message(error)}"
        ) from error
    return booster


def get_message(error: BaseException) -> str:
    """The message of an XGBoost error, without the place in its sources and the stack."""
    text = str(error).split("Stack trace")[0].strip()
    failed = text.partition("Check failed: ")[2]
    return failed.partition(" : ")[2].strip() or failed or text


def check_booster(model: Any) -> Any:
    """The unpickled model. Raises ValueError if it is not a booster."""
    if isinstance(model, importlib.import_module("xgboost").Booster):
        return model
    raise ValueError(f"it holds {type(model).__name__}, which is no booster")


def predict(booster: Any, matrix: Any) -> Any:
    """A booster's prediction, by its best trees if early stopping chose them.

    XGBoost 2 has no `best_ntree_limit`. AWS's container then uses every tree, and so does this.
    """
    last = getattr(booster, "best_ntree_limit", 0) or 0
    if "iteration_range" not in inspect.signature(booster.predict).parameters:
        return booster.predict(matrix, ntree_limit=last, validate_features=False)
    chosen = (0, int(booster.best_iteration) + 1) if last else (0, 0)
    return booster.predict(matrix, iteration_range=chosen, validate_features=False)


def find_most_frequent(row: Any) -> Any:
    """The most frequent value. If several are equally frequent, the smallest of them."""
    values, counts = importlib.import_module("numpy").unique(row, return_counts=True)
    return values[counts.argmax()]


def from_csv(body: Any) -> Any:
    """The array of the lines. The first line shows the separator. An empty field is NaN."""
    numpy = importlib.import_module("numpy")
    lines = read_text(body).split("\n")
    try:
        separator = csv.Sniffer().sniff(lines[0][:512]).delimiter
    except csv.Error:
        separator = ","
    separator = "," if separator.isalnum() or separator in ".-+" else separator
    return numpy.array(read_rows(lines, separator))


def from_libsvm(body: Any) -> Any:
    """The sparse matrix of the lines ``[label] index:value ...``."""
    rows = [
        read_line(number, line, read_features)
        for number, line in enumerate(read_text(body).split("\n"), 1)
    ]
    for number, features in enumerate(rows, 1):
        for index, _ in features:
            if not 0 <= index < recordio.MAX_COLUMNS:
                raise ValueError(
                    f"line {number} has the index {index}; indices must be from 0 to "
                    f"{recordio.MAX_COLUMNS - 1}"
                )
    return to_sparse_matrix(rows, min_columns=1)


def from_recordio(body: Any) -> Any:
    """The rows of records."""
    return recordio.decode_features(bytes(body))


def read_text(body: Any) -> str:
    """The body as text without surrounding white space. Raises ValueError if it is empty."""
    text = to_text(body)
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip().replace("\r\n", "\n")


class Scores:
    """Predictions, and the settings of the model."""

    def __init__(self, prediction: Any, objective: str, num_class: int) -> None:
        self.prediction = importlib.import_module("numpy").asarray(prediction)
        self.objective = objective
        self.num_class = num_class


def is_multi_model() -> bool:
    """True in the server of many models."""
    return os.environ.get("SAGEMAKER_MULTI_MODEL") == "true"


def encode_scores(scores: Scores, kind: str) -> bytes:
    """The answer in the type `kind`. Raises ValueError if the objective has no such answers."""
    names = os.environ.get("SAGEMAKER_INFERENCE_OUTPUT")
    values = scores.prediction.tolist()
    if is_multi_model() and kind == JSON:
        return json.dumps(values).encode()
    if names is not None and not is_multi_model():
        keys = names.replace(" ", "").lower().split(",")
        rows = [select_parts(scores, keys, raw) for raw in scores.prediction]
        return encode_rows(rows, kind, keys)
    if os.environ.get("SAGEMAKER_BATCH"):
        return ("\n".join(map(str, values)) + "\n").encode()  # for every type
    if is_multi_model():
        return ",".join(map(str, values)).encode()
    if kind != CSV:
        return encode_rows([{"score": value} for value in values], kind, ["score"])
    return "".join(",".join(map(str, to_list(value))) + "\n" for value in values).encode()


def encode_rows(rows: list[dict[str, Any]], kind: str, keys: list[str]) -> bytes:
    """The rows as JSON, lines of JSON, records with labels, or csv in the order of `keys`."""
    if kind == RECORDIO:
        return recordio.encode_labels(
            [{key: to_list(value) for key, value in row.items()} for row in rows]
        )
    if kind == JSON:
        return json.dumps({"predictions": rows}).encode()
    if kind == JSON_LINES:
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    lines = (
        ",".join(f'"{row[key]}"' if isinstance(row[key], list) else str(row[key]) for key in keys)
        for row in rows
    )
    end = "\n" if os.environ.get("SAGEMAKER_BATCH") else ""
    return ("\n".join(lines) + end).encode()


def to_list(value: Any) -> list[Any]:
    """The value if it is a list, otherwise a list of it."""
    return value if isinstance(value, list) else [value]


def select_parts(scores: Scores, keys: list[str], raw: Any) -> dict[str, Any]:
    """The parts `keys` of one prediction. Raises ValueError if the objective has no parts."""
    allowed = SELECTABLE.get(scores.objective)
    if allowed is None:
        raise ValueError(
            f"SAGEMAKER_INFERENCE_OUTPUT does not know the objective {scores.objective}; it must "
            f"be one of {sorted(SELECTABLE)}"
        )
    parts = compute_parts(scores.objective, scores.num_class, raw)
    return {key: parts[key] if key in allowed else NAN for key in keys}


def compute_parts(objective: str, num_class: int, raw: Any) -> dict[str, Any]:
    """Every part that an answer may have."""
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


READERS = {CSV: from_csv, LIBSVM: from_libsvm, RECORDIO: from_recordio}
