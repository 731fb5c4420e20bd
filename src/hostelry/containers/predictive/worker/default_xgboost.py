"""XGBoost without functions of its own: the algorithm mode of AWS's container.

Every file of the model folder is a model: XGBoost's own JSON, UBJ or older binary, or a pickle. Of
several the answer is the mean, or for class numbers the vote (SAGEMAKER_INFERENCE_ENSEMBLE).
Bodies are csv, libsvm or recordio-protobuf; indices of libsvm are taken as they are written.
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

from hostelry.containers.predictive.worker import lines, recordio, xgboost_output
from hostelry.containers.predictive.worker.refusal import (
    BAD_REQUEST,
    BODY_ERRORS,
    UNSUPPORTED_TYPE,
    first_accepted,
    media_type,
    refusal,
)

CSV, LIBSVM, X_LIBSVM = "text/csv", "text/libsvm", "text/x-libsvm"
RECORDIO = "application/x-recordio-protobuf"
ACCEPTED = (CSV, "application/json", "application/jsonlines", RECORDIO)
OF_MANY = ("application/json", CSV)
PLAIN = ("application/json", CSV, "application/x-npy")
NAMES = {
    "csv": CSV, CSV: CSV, "libsvm": LIBSVM, LIBSVM: LIBSVM, X_LIBSVM: LIBSVM, "": LIBSVM,
    "recordio-protobuf": RECORDIO, RECORDIO: RECORDIO,
}  # fmt: skip
VOTED = ("multi:softmax", "binary:hinge")
PICKLE_START = b"\x80"
# The start of XGBoost's binary form: base score, features, classes, and what is not read here.
BINARY_START = b"binf"
MODEL_PARAMETERS = struct.Struct("<fIi124x")
NAME_LENGTH = struct.Struct("<Q")


class Boosters:
    """The loaded models and the settings of the first."""

    def __init__(self, boosters: list[Any]) -> None:
        self.boosters = boosters
        self.objective, self.num_class, self.num_features = settings_of(boosters[0])

    def predict(self, matrix: Any) -> Any:
        """The models' joint prediction."""
        numpy = importlib.import_module("numpy")
        found = [predicted(each, matrix) for each in self.boosters]
        if len(found) == 1:
            return found[0]
        if self.objective in VOTED:
            columns = numpy.stack(found, axis=1)
            return numpy.array([most_frequent(row) for row in columns])
        return numpy.mean(found, axis=0)


class XGBoostHandler:
    """The functions of XGBoost models.

    `execution_parameters` are those of AWS's algorithm mode; None: as many as workers.
    """

    execution_parameters = MappingProxyType(
        {"MaxConcurrentTransforms": None, "BatchStrategy": "MULTI_RECORD"}
    )

    @property
    def default_accept(self) -> str:
        """The answer's type where neither client nor variable names one."""
        return OF_MANY[0] if xgboost_output.of_many() else CSV

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
        return Boosters([loaded(os.path.join(model_dir, name)) for name in names])

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The body as a DMatrix."""
        kind = NAMES.get(media_type(content_type))
        if kind is None:
            known = f"{CSV}, {LIBSVM}, {X_LIBSVM} or {RECORDIO}"
            raise refusal(
                UNSUPPORTED_TYPE, f"the content type is {content_type[:200]!r}; it must be {known}"
            )
        try:
            rows = READERS[kind](input_data)
            return importlib.import_module("xgboost").DMatrix(rows)
        except BODY_ERRORS as error:
            raise refusal(UNSUPPORTED_TYPE, f"the body cannot be read as {kind}: {error}") from None

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """What the models predict for the rows."""
        if not isinstance(model, Boosters):  # of the author's own model_fn
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
                f"the model cannot take the body: {message_of(error)} (its rows have {columns} "
                f"features, the model was trained with {features})",
            ) from None
        return xgboost_output.Scores(prediction, model.objective, model.num_class)

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the asked type, and the type."""
        if not isinstance(prediction, xgboost_output.Scores):  # of the author's own functions
            encoder = importlib.import_module("sagemaker_inference.encoder")
            kind = first_accepted(accept, PLAIN)
            return encoder.encode(prediction, kind), kind
        if xgboost_output.of_many():
            kind = first_accepted(accept, OF_MANY, UNSUPPORTED_TYPE)
        else:
            kind = first_accepted(accept, ACCEPTED)
        return xgboost_output.encoded(prediction, kind), kind


def settings_of(booster: Any) -> tuple[str, int, int]:
    """A booster's objective, its classes and its features, for which 1.4 has the first method."""
    if not hasattr(booster, "save_config"):
        return older_settings(bytes(booster.save_raw()))
    learner = json.loads(booster.save_config())["learner"]
    parameters = learner["learner_model_param"]
    classes, features = parameters.get("num_class", "0"), parameters["num_feature"]
    return str(learner["objective"]["name"]), int(classes), int(features)


def older_settings(raw: bytes) -> tuple[str, int, int]:
    """The same from the binary form of XGBoost before 1.0, in which nothing else has them.

    Raises ValueError for anything else. Source: LearnerModelParam in its src/learner.cc.
    """
    start = len(BINARY_START) if raw.startswith(BINARY_START) else 0
    name_at = start + MODEL_PARAMETERS.size + NAME_LENGTH.size
    if len(raw) < name_at:
        raise ValueError(f"the binary form of the model has {len(raw)} bytes only")
    _, num_features, num_class = MODEL_PARAMETERS.unpack_from(raw, start)
    (length,) = NAME_LENGTH.unpack_from(raw, name_at - NAME_LENGTH.size)
    return raw[name_at : name_at + length].decode("ascii"), num_class, num_features


def loaded(path: str) -> Any:
    """The booster of a file; raises ValueError with the file's name."""
    xgboost = importlib.import_module("xgboost")
    with open(path, "rb") as file:
        is_pickle = file.read(1) == PICKLE_START
    try:
        if is_pickle:
            with open(path, "rb") as file:
                model = pickle.load(file)  # its author's code
            return model.get_booster() if hasattr(model, "get_booster") else checked(model)
        booster = xgboost.Booster()
        booster.load_model(path)
    except (xgboost.core.XGBoostError, pickle.UnpicklingError, EOFError, *BODY_ERRORS) as error:
        raise ValueError(
            f"{os.path.basename(path)} cannot be loaded: {message_of(error)}"
        ) from error
    return booster


def message_of(error: BaseException) -> str:
    """What an error of XGBoost says, without the place in its sources and the stack."""
    text = str(error).split("Stack trace")[0].strip()
    failed = text.partition("Check failed: ")[2]
    return failed.partition(" : ")[2].strip() or failed or text


def checked(model: Any) -> Any:
    """The unpickled model; raises ValueError for anything else than a booster."""
    if isinstance(model, importlib.import_module("xgboost").Booster):
        return model
    raise ValueError(f"it holds {type(model).__name__}, which is no booster")


def predicted(booster: Any, matrix: Any) -> Any:
    """A booster's prediction, by its best trees where early stopping chose them.

    XGBoost 2 keeps no `best_ntree_limit`; AWS's container then uses every tree, and so do we.
    """
    last = getattr(booster, "best_ntree_limit", 0) or 0
    if "iteration_range" not in inspect.signature(booster.predict).parameters:
        return booster.predict(matrix, ntree_limit=last, validate_features=False)
    chosen = (0, int(booster.best_iteration) + 1) if last else (0, 0)
    return booster.predict(matrix, iteration_range=chosen, validate_features=False)


def most_frequent(row: Any) -> Any:
    """The value that most models gave; of equals the least."""
    values, counts = importlib.import_module("numpy").unique(row, return_counts=True)
    return values[counts.argmax()]


def from_csv(body: Any) -> Any:
    """The array of lines whose separator the first of them shows; an empty field is missing."""
    numpy = importlib.import_module("numpy")
    text = as_text(body).split("\n")
    try:
        separator = csv.Sniffer().sniff(text[0][:512]).delimiter
    except csv.Error:
        separator = ","
    separator = "," if separator.isalnum() or separator in ".-+" else separator
    return numpy.array(lines.rows_of(text, separator))


def from_libsvm(body: Any) -> Any:
    """The sparse matrix of the lines ``[label] index:value ...``."""
    found = [
        lines.of_line(number, line, lines.features_of)
        for number, line in enumerate(as_text(body).split("\n"), 1)
    ]
    pairs = [(row, *pair) for row, each in enumerate(found) for pair in each]
    for row, index, _ in pairs:
        if not 0 <= index < recordio.MAX_COLUMNS:
            raise ValueError(
                f"line {row + 1} has the index {index}; indices must be from 0 to "
                f"{recordio.MAX_COLUMNS - 1}"
            )
    rows, columns, values = zip(*pairs) if pairs else ((), (), ())  # noqa: B905 - of Python 3.10
    sparse = importlib.import_module("scipy.sparse")
    shape = (len(found), max(columns, default=0) + 1)
    return sparse.csr_matrix((values, (rows, columns)), shape=shape)


def from_recordio(body: Any) -> Any:
    """The rows of records."""
    return recordio.features_of(bytes(body))


def as_text(body: Any) -> str:
    """The body as text without white space around it; raises ValueError for an empty one."""
    text = body if isinstance(body, str) else bytes(body).decode("utf-8")
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip().replace("\r\n", "\n")


READERS = {CSV: from_csv, LIBSVM: from_libsvm, RECORDIO: from_recordio}
