"""Subtracts the mean of the training data and divides by its deviation."""

import os

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """Triton finds it by this name, and gives it a process of its own."""

    def initialize(self, args):
        """Load mean and deviation."""
        folder = os.path.join(args["model_repository"], args["model_version"])
        fitted = np.load(os.path.join(folder, "fitted.npz"))
        self.mean, self.deviation = fitted["mean"], fitted["deviation"]

    def execute(self, requests):
        """Scale each request's rows."""
        answers = []
        for request in requests:
            measures = triton.get_input_tensor_by_name(request, "measures").as_numpy()
            scaled = (measures - self.mean) / self.deviation
            answers.append(
                triton.InferenceResponse([triton.Tensor("scaled", scaled.astype(np.float32))])
            )
        return answers
