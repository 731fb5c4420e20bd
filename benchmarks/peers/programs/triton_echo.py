"""A step for Triton's Python backend: returns its input after the milliseconds in the file `ms`."""

import time
from pathlib import Path
from typing import Any

import numpy
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton finds by this name. It stacks the inputs a, b, ... if it has them."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read how long a request takes."""
        folder = Path(args["model_repository"]) / args["model_version"]
        self.sleep_s = float((folder / "ms").read_text()) / 1000

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer each request."""
        if self.sleep_s:
            time.sleep(self.sleep_s)
        return [triton.InferenceResponse([triton.Tensor("y", stacked(it))]) for it in requests]


def stacked(request: Any) -> Any:
    """The request's one input, or all inputs as rows."""
    inputs = [it.as_numpy() for it in request.inputs()]
    return inputs[0] if len(inputs) == 1 else numpy.concatenate(inputs)
