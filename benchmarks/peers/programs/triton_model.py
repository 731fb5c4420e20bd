"""A model for Triton's Python backend: the scikit-learn model in this file's folder."""

import os
from typing import Any

import joblib
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton finds by this name, and runs in a separate process."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model."""
        folder = os.path.join(args["model_repository"], args["model_version"])
        self.model = joblib.load(os.path.join(folder, "model.joblib"))

    def execute(self, requests: list[Any]) -> list[Any]:
        """Predict for each request."""
        answers = []
        for request in requests:
            rows = triton.get_input_tensor_by_name(request, "ROWS").as_numpy()
            predicted = triton.Tensor("PREDICTED", self.model.predict(rows))
            answers.append(triton.InferenceResponse([predicted]))
        return answers
