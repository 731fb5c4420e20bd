"""A logistic regression; the requests of a batch are computed together."""

import os

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """Triton finds it by this name, and gives it a process of its own."""

    def initialize(self, args):
        """Load the weights."""
        folder = os.path.join(args["model_repository"], args["model_version"])
        fitted = np.load(os.path.join(folder, "fitted.npz"))
        self.weights, self.bias = fitted["weights"], fitted["bias"]

    def execute(self, requests):
        """Compute the requests of a batch together."""
        rows = [triton.get_input_tensor_by_name(it, "scaled").as_numpy() for it in requests]
        scores = np.concatenate(rows) @ self.weights + self.bias
        probabilities = (1 / (1 + np.exp(-scores))).astype(np.float32).reshape(-1, 1)
        ends = np.cumsum([len(it) for it in rows])
        parts = np.split(probabilities, ends[:-1])
        return [triton.InferenceResponse([triton.Tensor("probability", it)]) for it in parts]
