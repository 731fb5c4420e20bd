"""Default functions of Hugging Face models: a pipeline of transformers.

The task is HF_TASK, or the one of the architecture in config.json. The model is the model folder,
or HF_MODEL_ID (HF_MODEL_REVISION) of the hub. A body has `inputs` and optional `parameters`.
"""

from __future__ import annotations

import base64
import csv
import importlib
import io
import json
import os
from typing import Any

from hostelry.containers.predictive.worker.bodies import (
    BAD_REQUEST,
    BODY_ERRORS,
    CSV,
    JSON,
    NPY,
    choose_accepted,
    decode_npy,
    media_type,
    refusal,
    to_text,
    unsupported_type,
)

TASKS = {
    "TapasForQuestionAnswering": "table-question-answering",
    "ForQuestionAnswering": "question-answering",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
    "LMHeadModel": "text-generation",
    "ForCausalLM": "text-generation",
    "ForConditionalGeneration": "text2text-generation",
    "MTModel": "text2text-generation",
    "EncoderDecoderModel": "text2text-generation",
    "ForImageClassification": "image-classification",
    "ForObjectDetection": "object-detection",
    "ForCTC": "automatic-speech-recognition",
}
IMAGES = ("image/jpeg", "image/png", "image/tiff", "image/bmp", "image/gif", "image/webp")
AUDIO = ("audio/x-flac", "audio/mpeg", "audio/wave", "audio/ogg", "audio/x-audio")
ACCEPTED = (JSON, CSV, NPY, "image/png", "image/jpeg", "image/webp", "image/bmp", "image/tiff")
NO_CSV = ("zero-shot-classification", "table-question-answering")
CSV_NAMES = ("inputs", "question", "context")
MAX_PIXELS = 64 << 20


class HuggingFaceHandler:
    """The functions of Hugging Face models."""

    def default_model_fn(self, model_dir: str, context: Any = None) -> Any:
        """The pipeline for the model's task."""
        transformers = importlib.import_module("transformers")
        model, revision = os.environ.get("HF_MODEL_ID") or model_dir, None
        if model.startswith("/opt/ml/model"):
            model = model_dir
        elif model != model_dir:
            revision = os.environ.get("HF_MODEL_REVISION") or None
        trusted = os.environ.get("HF_TRUST_REMOTE_CODE", "").lower() in ("1", "true")
        return transformers.pipeline(
            task=os.environ.get("HF_TASK") or find_task(model_dir),
            model=model,
            revision=revision,
            device=0 if importlib.import_module("torch").cuda.is_available() else -1,
            **({"trust_remote_code": True} if trusted else {}),  # 4.12 has no such argument
        )

    def default_input_fn(self, input_data: Any, content_type: str, context: Any = None) -> Any:
        """The body as an object with `inputs`."""
        kind = media_type(content_type)
        if kind == CSV and os.environ.get("HF_TASK") in NO_CSV:
            raise refusal(BAD_REQUEST, f"the task {os.environ['HF_TASK']} takes no {CSV}")
        read = find_reader(kind)
        if read is None:
            known = ", ".join((JSON, CSV, NPY, *IMAGES, *AUDIO))
            raise unsupported_type(content_type, f"one of {known}")
        try:
            return read(input_data)
        except (*BODY_ERRORS, OSError) as error:
            raise refusal(BAD_REQUEST, f"the body cannot be read as {kind}: {error}") from None

    def default_predict_fn(self, data: Any, model: Any, context: Any = None) -> Any:
        """The pipeline's result for the inputs."""
        inputs: Any = data
        parameters: Any = {}
        if isinstance(data, dict):
            inputs = data.get("inputs", data)
            parameters = data.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise refusal(
                BAD_REQUEST, f"parameters is {type(parameters).__name__}; it must be an object"
            )
        try:
            return model(inputs, **parameters)
        except BODY_ERRORS as error:
            raise refusal(BAD_REQUEST, f"{type(error).__name__}: {error}") from error

    def default_output_fn(self, prediction: Any, accept: str, context: Any = None) -> Any:
        """The prediction in the accepted type, and the type."""
        kind = choose_accepted(accept, ACCEPTED)
        try:
            if kind == JSON:
                return to_json(prediction), kind
            if kind == CSV:
                return to_csv(prediction), kind
            if kind == NPY:
                encoder = importlib.import_module("sagemaker_inference.encoder")
                return encoder.encode(prediction, NPY), kind
            return to_image(prediction, kind), kind
        except (*BODY_ERRORS, AttributeError) as error:
            raise refusal(BAD_REQUEST, f"the answer cannot be written as {kind}: {error}") from None


def find_task(model_dir: str) -> str:
    """The task of the architecture in config.json. Raises ValueError if it is unknown."""
    try:
        with open(os.path.join(model_dir, "config.json"), encoding="utf-8") as file:
            architecture = str((json.load(file).get("architectures") or [""])[0])
    except OSError:
        raise ValueError("the model has no config.json; name its task with HF_TASK") from None
    for ending, task in TASKS.items():
        if architecture.endswith(ending):
            return task
    raise ValueError(
        f"no task is known for the architecture {architecture[:200]!r}; name it with HF_TASK"
    )


def find_reader(kind: str) -> Any:
    """The function that reads a body of this type. None for an unknown type."""
    if kind in IMAGES or kind == "image/x-image":
        return from_image
    if kind in AUDIO:
        return from_audio
    return {JSON: from_json, CSV: from_csv, NPY: from_npy}.get(kind)


def from_json(body: Any) -> Any:
    """The value of a JSON body."""
    return json.loads(body)


def from_csv(body: Any) -> Any:
    """The rows of a body with the column `inputs`, or with `question` and `context`."""
    rows = list(csv.DictReader(io.StringIO(to_text(body))))
    names = rows[0].keys() if rows else ()
    if not any(name in names for name in CSV_NAMES):
        raise ValueError("its first line must name the columns: inputs, or question and context")
    if "inputs" in names:
        return {"inputs": [row["inputs"] for row in rows]}
    return {"inputs": [dict(row) for row in rows]}


def from_npy(body: Any) -> Any:
    """The array of a .npy file. Raises ValueError for an array of Python objects."""
    return {"inputs": decode_npy(body)}


def from_image(body: Any) -> Any:
    """The image of the body."""
    images = importlib.import_module("PIL.Image")
    image = images.open(io.BytesIO(body))
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(f"it has {image.width} x {image.height} pixels; at most {MAX_PIXELS}")
    return {"inputs": image.convert("RGB")}


def from_audio(body: Any) -> Any:
    """The sound of the body, unchanged."""
    return {"inputs": bytes(body)}


def to_json(prediction: Any) -> str:
    """Compact JSON. Arrays, numbers of frameworks and images are converted."""
    return json.dumps(
        prediction,
        ensure_ascii=False,
        allow_nan=False,
        default=to_json_value,
        separators=(",", ":"),
    )


def to_json_value(value: Any) -> Any:
    """A JSON value for a value that JSON lacks. Raises TypeError."""
    if hasattr(value, "tolist"):  # of numpy and torch
        return value.tolist()
    if hasattr(value, "save") and hasattr(value, "convert"):
        return base64.b64encode(to_image(value, "image/png")).decode()
    if hasattr(value, "isoformat"):
        return str(value)
    raise TypeError(f"a value is {type(value).__name__}, which JSON cannot have")


def to_csv(prediction: Any) -> str:
    """A line of names and one line per object of the prediction."""
    rows = prediction if isinstance(prediction, list) else [prediction]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0].keys()))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_image(image: Any, kind: str) -> bytes:
    """The image in this type."""
    written = io.BytesIO()
    image.save(written, format=kind.split("/")[1].upper())
    return written.getvalue()
