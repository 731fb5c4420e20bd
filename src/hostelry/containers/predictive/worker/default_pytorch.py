"""PyTorch without functions of its own: a TorchScript model, tensors in and out.

As AWS's container: model.pt, else the one .pt or .pth file; JSON, csv and npy bodies.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from hostelry.containers.predictive.worker.refusal import (
    BAD_REQUEST,
    BODY_ERRORS,
    UNSUPPORTED_TYPE,
    first_accepted,
    media_type,
    refusal,
)

MODEL_FILE = "model.pt"
ACCEPTED = ("application/json", "text/csv", "application/x-npy")


class PyTorchHandler:
    """The functions of PyTorch models."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The TorchScript model, on the GPU where there is one."""
        torch = importlib.import_module("torch")
        name = model_file(model_dir)
        try:
            model = torch.jit.load(os.path.join(model_dir, name), map_location=device())
        except RuntimeError as error:
            why = str(error).partition("\n")[0][:200]
            raise ValueError(
                f"{name} is no TorchScript model; save it with torch.jit.save, or give model_fn in "
                f"code/inference.py ({why})"
            ) from error
        return model.eval()

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The tensor of the body, of 32-bit floats where the body is text."""
        torch = importlib.import_module("torch")
        decoder = importlib.import_module("sagemaker_inference.decoder")
        types = importlib.import_module("sagemaker_inference.content_types")
        kind = media_type(content_type)
        if kind not in decoder._decoder_map:
            known = sorted(decoder._decoder_map)
            raise refusal(
                UNSUPPORTED_TYPE,
                f"the content type is {str(content_type)[:200]!r}; it must be one of {known}",
            )
        try:
            is_text = kind in types.UTF8_TYPES
            is_encoded = is_text and not isinstance(input_data, str)
            body = bytes(input_data).decode("utf-8") if is_encoded else input_data
            array = decoder.decode(body, kind)
            tensor = torch.FloatTensor(array) if is_text else torch.from_numpy(array)
        except BODY_ERRORS as error:
            raise refusal(BAD_REQUEST, f"the body cannot be read as {kind}: {error}") from None
        return tensor.to(device())

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """What the model gives for the tensor."""
        torch = importlib.import_module("torch")
        if isinstance(model, torch.nn.Module):
            model.to(device()).eval()
        with torch.no_grad():
            return model(data.to(device()) if hasattr(data, "to") else data)

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the asked type, and the type."""
        encoder = importlib.import_module("sagemaker_inference.encoder")
        kind = first_accepted(accept, ACCEPTED)
        return encoder.encode(as_lists(prediction), kind), kind


def device() -> Any:
    """The first GPU, or the CPU."""
    torch = importlib.import_module("torch")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def model_file(model_dir: str) -> str:
    """The name of the model's file. Raises ValueError."""
    names = sorted(
        name
        for name in os.listdir(model_dir)
        if name.endswith((".pt", ".pth")) and os.path.isfile(os.path.join(model_dir, name))
    )
    if MODEL_FILE in names:
        return MODEL_FILE
    if len(names) == 1:
        return names[0]
    raise ValueError(
        "without model_fn the model's folder must hold model.pt, or one .pt or .pth file; it has "
        + (", ".join(names) or "none")
    )


def as_lists(prediction: Any) -> Any:
    """The prediction with a list in place of each tensor."""
    torch = importlib.import_module("torch")
    if isinstance(prediction, torch.Tensor):
        return prediction.detach().cpu().tolist()
    if isinstance(prediction, dict):
        return {name: as_lists(it) for name, it in prediction.items()}
    if isinstance(prediction, (list, tuple)):
        return [as_lists(each) for each in prediction]
    return prediction
