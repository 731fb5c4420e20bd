"""The names of AWS's PyTorch and Hugging Face toolkits that scripts use; see aws_modules.py."""

from __future__ import annotations

import importlib
from typing import Any

from hostelry.containers.predictive.worker import default_huggingface
from hostelry.containers.predictive.worker.default_pytorch import PyTorchHandler
from hostelry.containers.predictive.worker.refusal import media_type

PICTURES = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP", "X_IMAGE")
ANY_PICTURE = "image/x-image"
SOUNDS = ("FLAC", "MP3", "WAV", "OGG", "X_AUDIO")
JSON = default_huggingface.JSON


def pytorch() -> dict[str, Any]:
    """sagemaker_pytorch_serving_container.default_pytorch_inference_handler."""
    base: Any = importlib.import_module("sagemaker_inference.default_inference_handler")
    bases = (PyTorchHandler, base.DefaultInferenceHandler)
    return {"DefaultPytorchInferenceHandler": type("DefaultPytorchInferenceHandler", bases, {})}


def content_types() -> dict[str, Any]:
    """sagemaker_huggingface_inference_toolkit.content_types."""
    known = default_huggingface
    pictures = dict(zip(PICTURES, (*known.IMAGES, ANY_PICTURE)))  # noqa: B905 - of Python 3.10
    sounds = dict(zip(SOUNDS, known.AUDIO))  # noqa: B905 - of Python 3.10
    return {
        "JSON": known.JSON,
        "CSV": known.CSV,
        "NPY": known.NPY,
        "ANY": "*/*",
        "OCTET_STREAM": "application/octet-stream",
        "UTF8_TYPES": [known.JSON, known.CSV],
        **pictures,
        **sounds,
        "VISION_TYPES": list(pictures.values()),
        "AUDIO_TYPES": list(sounds.values()),
    }


def decoder_encoder() -> dict[str, Any]:
    """sagemaker_huggingface_inference_toolkit.decoder_encoder."""
    known = default_huggingface
    return {
        "decode": decode,
        "decode_json": known.from_json,
        "decode_csv": known.from_csv,
        "decode_image": known.from_image,
        "decode_audio": known.from_audio,
        "encode": encode,
        "encode_json": encode_json,
        "encode_csv": encode_csv,
        "encode_image": encode_image,
    }


def mms() -> dict[str, Any]:
    """mms.service of multi-model-server."""
    errors: Any = importlib.import_module("sagemaker_inference.errors")
    base = errors.GenericInferenceToolkitError

    def initialized(self: Any, message: str, error_code: int = 500) -> None:
        base.__init__(self, error_code, message)

    return {"PredictionException": type("PredictionException", (base,), {"__init__": initialized})}


def decode(content: Any, content_type: str = JSON) -> Any:
    """The object of a body of this type. Raises UnsupportedFormatError."""
    reader = default_huggingface.reader_of(media_type(content_type))
    return unsupported(content_type) if reader is None else reader(content)


def encode(content: Any, accept_type: str = JSON) -> Any:
    """The prediction as a body of this type. Raises UnsupportedFormatError."""
    kind = media_type(accept_type)
    if kind == JSON:
        return encode_json(content)
    if kind == default_huggingface.CSV:
        return encode_csv(content)
    if kind == default_huggingface.NPY:
        return importlib.import_module("sagemaker_inference.encoder").encode(content, kind)
    if kind in (*default_huggingface.IMAGES, ANY_PICTURE):
        return encode_image(content, kind)
    return unsupported(accept_type)


def encode_json(content: Any, accept_type: Any = None) -> str:
    """The prediction as JSON."""
    del accept_type
    return default_huggingface.to_json(content)


def encode_csv(content: Any, accept_type: Any = None) -> str:
    """The prediction as csv."""
    del accept_type
    return default_huggingface.to_csv(content)


def encode_image(image: Any, accept_type: str = "image/png") -> bytes:
    """The picture in its format."""
    is_any = accept_type == ANY_PICTURE
    return default_huggingface.to_image(image, "image/png" if is_any else accept_type)


def unsupported(content_type: str) -> Any:
    """Raise the toolkit's error for a content type."""
    errors: Any = importlib.import_module("sagemaker_inference.errors")
    raise errors.UnsupportedFormatError(content_type)
