"""The functions that stand in for those that a model's code does not have, by framework.

scikit-learn is here: as AWS's container, except that it loads the one .joblib, .pkl or .pickle file
of the model folder; AWS's has no model_fn.
"""

from __future__ import annotations

import glob
import importlib
import os
import pickle
from typing import Any

from hostelry.containers.predictive.worker import lines
from hostelry.containers.predictive.worker.default_autogluon import AutoGluonHandler
from hostelry.containers.predictive.worker.default_huggingface import HuggingFaceHandler
from hostelry.containers.predictive.worker.default_pytorch import PyTorchHandler
from hostelry.containers.predictive.worker.default_tensorflow import TensorFlowHandler
from hostelry.containers.predictive.worker.default_xgboost import XGBoostHandler
from hostelry.containers.predictive.worker.refusal import BODY_ERRORS, media_type

SCIKIT_LEARN_FILES = ("*.joblib", "*.pkl", "*.pickle")


def handler_of(framework: str) -> Any:
    """The default functions of a framework. Raises ValueError for an unknown one."""
    base = importlib.import_module("sagemaker_inference.default_inference_handler")
    own = HANDLERS.get(framework)
    if own is None:
        raise ValueError(f"framework is {framework}; it must be one of {sorted(HANDLERS)}")
    return type(own.__name__, (own, base.DefaultInferenceHandler), {})()


class ScikitLearnHandler:
    """The functions of scikit-learn models."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The one model file of the folder."""
        return unpickled(the_file(model_dir, SCIKIT_LEARN_FILES))

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The array of the body, as 32-bit floats where the body is text."""
        numpy = importlib.import_module("numpy")
        decoder = importlib.import_module("sagemaker_inference.decoder")
        types = importlib.import_module("sagemaker_inference.content_types")
        kind = media_type(content_type)
        if kind == types.CSV:  # the toolkit reads a missing number as -1, and one row as a column
            rows = lines.rows_of(input_data.replace("\r\n", "\n").strip("\n").split("\n"))
            return numpy.array(rows, numpy.float32)
        decoded = decoder.decode(input_data, content_type)
        return decoded.astype(numpy.float32) if kind in types.UTF8_TYPES else decoded

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """What the model predicts for the array."""
        return model.predict(data)


def unpickled(path: str) -> Any:
    """The model of a file, of joblib or of the joblib that scikit-learn before 0.21 has in itself.

    Each reads its own files alone.
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


def the_file(model_dir: str, patterns: Any) -> str:
    """The only file of the folder with such a name. Raises ValueError."""
    found: list[str] = []
    for pattern in patterns:
        found += sorted(glob.glob(os.path.join(glob.escape(model_dir), pattern)))
    if len(found) == 1:
        return found[0]
    names = ", ".join(os.path.basename(it) for it in found) or "none"
    raise ValueError(
        "without model_fn the model's folder must hold one file {}; it has {}".format(
            " or ".join(patterns), names
        )
    )


HANDLERS: dict[str, Any] = {
    "autogluon": AutoGluonHandler,
    "huggingface": HuggingFaceHandler,
    "pytorch": PyTorchHandler,
    "sklearn": ScikitLearnHandler,
    "tensorflow": TensorFlowHandler,
    "xgboost": XGBoostHandler,
}
