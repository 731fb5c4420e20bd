"""Default functions by framework, for functions that a model's code lacks.

scikit-learn, PyTorch and AutoGluon are here, the others in separate modules.

scikit-learn  as AWS's container, but with a model_fn, which AWS's container lacks: it loads the one
              .joblib, .pkl or .pickle file of the model folder
PyTorch       as AWS's container: a TorchScript model, model.pt or the one .pt or .pth file, with
              JSON, csv and npy bodies
AutoGluon     AWS's container has no default. Here the folder's one tabular predictor answers with
              its predictions, with csv and JSON bodies
"""

from __future__ import annotations

import csv
import glob
import importlib
import io
import json
import os
import pickle
from typing import Any

from hostelry.containers.predictive.worker.bodies import (
    BAD_REQUEST,
    BODY_ERRORS,
    CSV,
    JSON,
    NPY,
    choose_accepted,
    media_type,
    read_rows,
    refusal,
    to_text,
    unsupported_type,
)
from hostelry.containers.predictive.worker.default_huggingface import HuggingFaceHandler
from hostelry.containers.predictive.worker.default_tensorflow import TensorFlowHandler
from hostelry.containers.predictive.worker.default_xgboost import XGBoostHandler

SCIKIT_LEARN_FILES = ("*.joblib", "*.pkl", "*.pickle")
TORCH_FILE = "model.pt"
PREDICTOR = "predictor.pkl"


def build_handler(framework: str) -> Any:
    """The default functions of a framework. Raises ValueError for an unknown framework."""
    base = importlib.import_module("sagemaker_inference.default_inference_handler")
    handler = HANDLERS.get(framework)
    if handler is None:
        raise ValueError(f"framework is {framework}; it must be one of {sorted(HANDLERS)}")
    return type(handler.__name__, (handler, base.DefaultInferenceHandler), {})()


class ScikitLearnHandler:
    """The functions of scikit-learn models."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The one model file of the folder."""
        return unpickle(find_file(model_dir, SCIKIT_LEARN_FILES))

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The array of the body, as 32-bit floats if the body is text."""
        numpy = importlib.import_module("numpy")
        decoder = importlib.import_module("sagemaker_inference.decoder")
        types = importlib.import_module("sagemaker_inference.content_types")
        kind = media_type(content_type)
        if kind == CSV:  # the toolkit reads a missing number as -1, and one row as a column
            rows = read_rows(input_data.replace("\r\n", "\n").strip("\n").split("\n"))
            return numpy.array(rows, numpy.float32)
        decoded = decoder.decode(input_data, content_type)
        return decoded.astype(numpy.float32) if kind in types.UTF8_TYPES else decoded

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The model's predictions for the array."""
        return model.predict(data)


def unpickle(path: str) -> Any:
    """The model of a file of joblib, or of the joblib inside scikit-learn before 0.21.

    Each of the two reads only its own files.
    """
    try:
        return importlib.import_module("joblib").load(path)
    except (*BODY_ERRORS, AttributeError, EOFError, ImportError, pickle.UnpicklingError):
        try:
            vendored = importlib.import_module("sklearn.externals.joblib")
        except ImportError:
            vendored = None
        if vendored is None:
            raise
    return vendored.load(path)


def find_file(model_dir: str, patterns: Any) -> str:
    """The only file of the folder that matches a pattern. Raises ValueError."""
    paths: list[str] = []
    for pattern in patterns:
        paths += sorted(glob.glob(os.path.join(glob.escape(model_dir), pattern)))
    if len(paths) == 1:
        return paths[0]
    names = ", ".join(os.path.basename(path) for path in paths) or "none"
    raise ValueError(
        "without model_fn the model's folder must hold one file {}; it has {}".format(
            " or ".join(patterns), names
        )
    )


class PyTorchHandler:
    """The functions of PyTorch models."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The TorchScript model, on the GPU if there is one."""
        torch = importlib.import_module("torch")
        name = find_torch_file(model_dir)
        try:
            model = torch.jit.load(os.path.join(model_dir, name), map_location=get_device())
        except RuntimeError as error:
            why = str(error).partition("\n")[0][:200]
            raise ValueError(
                f"{name} is no TorchScript model; save it with torch.jit.save, or give model_fn in "
                f"code/inference.py ({why})"
            ) from error
        return model.eval()

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The tensor of the body, with 32-bit floats if the body is text."""
        torch = importlib.import_module("torch")
        decoder = importlib.import_module("sagemaker_inference.decoder")
        types = importlib.import_module("sagemaker_inference.content_types")
        kind = media_type(content_type)
        if kind not in decoder._decoder_map:
            raise unsupported_type(content_type, f"one of {sorted(decoder._decoder_map)}")
        try:
            is_text = kind in types.UTF8_TYPES
            array = decoder.decode(to_text(input_data) if is_text else input_data, kind)
            tensor = torch.FloatTensor(array) if is_text else torch.from_numpy(array)
        except BODY_ERRORS as error:
            raise refusal(BAD_REQUEST, f"the body cannot be read as {kind}: {error}") from None
        return tensor.to(get_device())

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The model's prediction for the tensor."""
        torch = importlib.import_module("torch")
        if isinstance(model, torch.nn.Module):
            model.to(get_device()).eval()
        with torch.no_grad():
            return model(data.to(get_device()) if hasattr(data, "to") else data)

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the accepted type, and the type."""
        encoder = importlib.import_module("sagemaker_inference.encoder")
        kind = choose_accepted(accept, (JSON, CSV, NPY))
        return encoder.encode(to_lists(prediction), kind), kind


def get_device() -> Any:
    """The first GPU, or the CPU."""
    torch = importlib.import_module("torch")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def find_torch_file(model_dir: str) -> str:
    """The name of the model's file. Raises ValueError."""
    names = sorted(
        name
        for name in os.listdir(model_dir)
        if name.endswith((".pt", ".pth")) and os.path.isfile(os.path.join(model_dir, name))
    )
    if TORCH_FILE in names:
        return TORCH_FILE
    if len(names) == 1:
        return names[0]
    raise ValueError(
        "without model_fn the model's folder must hold model.pt, or one .pt or .pth file; it has "
        + (", ".join(names) or "none")
    )


def to_lists(prediction: Any) -> Any:
    """The prediction with lists in place of tensors."""
    torch = importlib.import_module("torch")
    if isinstance(prediction, torch.Tensor):
        return prediction.detach().cpu().tolist()
    if isinstance(prediction, dict):
        return {name: to_lists(value) for name, value in prediction.items()}
    if isinstance(prediction, (list, tuple)):
        return [to_lists(value) for value in prediction]
    return prediction


class AutoGluonHandler:
    """The functions of AutoGluon's tabular predictors."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The predictor in the model folder or in its one folder with a predictor."""
        tabular = importlib.import_module("autogluon.tabular")
        folders = [
            model_dir,
            *sorted(entry.path for entry in os.scandir(model_dir) if entry.is_dir()),
        ]
        found = [path for path in folders if os.path.isfile(os.path.join(path, PREDICTOR))]
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
            raise unsupported_type(content_type, f"{JSON} or {CSV}")
        try:
            text = to_text(input_data)
            rows = json.loads(text) if kind == JSON else read_csv(text)
        except (csv.Error, *BODY_ERRORS) as error:
            raise refusal(BAD_REQUEST, f"the body cannot be read as {kind}: {error}") from None
        return Rows(rows, kind)

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The predictor's result for each row."""
        if not isinstance(data, Rows):  # from the author's input_fn
            return model.predict(data)
        try:
            return model.predict(data.to_frame(list(model.features())))
        except (KeyError, *BODY_ERRORS) as error:
            raise refusal(BAD_REQUEST, f"the predictor cannot take the body: {error}") from None

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the accepted type, and the type."""
        kind = choose_accepted(accept, (JSON, CSV))
        if hasattr(prediction, "to_numpy"):
            prediction = prediction.to_numpy()
        encoder = importlib.import_module("sagemaker_inference.encoder")
        return encoder.encode(prediction, kind), kind


def read_csv(text: str) -> list[list[str]]:
    """The rows of csv that have a cell."""
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


class Rows:
    """The rows of a body, as lists or as objects by column. csv may begin with the column names."""

    def __init__(self, rows: Any, kind: str) -> None:
        self._rows = rows
        self._kind = kind

    def to_frame(self, features: list[str]) -> Any:
        """The pandas DataFrame with the model's columns. Raises ValueError."""
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
        if self._kind == CSV:  # texts that look like numbers become numbers
            text = io.StringIO()
            table.to_csv(text, index=False)
            table = pandas.read_csv(io.StringIO(text.getvalue()))
        return table


HANDLERS: dict[str, Any] = {
    "autogluon": AutoGluonHandler,
    "huggingface": HuggingFaceHandler,
    "pytorch": PyTorchHandler,
    "sklearn": ScikitLearnHandler,
    "tensorflow": TensorFlowHandler,
    "xgboost": XGBoostHandler,
}
