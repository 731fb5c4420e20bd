"""The functions of AWS's modules that inference scripts use. See aws_modules.py.

Each `provide_` function returns the names of one or more modules.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import os
from typing import Any

from hostelry.containers.predictive.worker import default_huggingface, default_xgboost, recordio
from hostelry.containers.predictive.worker.bodies import (
    CSV,
    JSON,
    LIBSVM,
    NPY,
    RECORDIO,
    X_LIBSVM,
    decode_npy,
    media_type,
)
from hostelry.containers.predictive.worker.defaults import PyTorchHandler

OCTETS = "application/octet-stream"
CHARACTER_BYTES, MAX_ARRAY_BYTES = 4, 1 << 30  # of an array of texts
MODEL_FOLDER, ACCEPT = "SM_MODEL_DIR", "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT"
IMAGE_NAMES = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP", "X_IMAGE")
ANY_IMAGE = "image/x-image"
AUDIO_NAMES = ("FLAC", "MP3", "WAV", "OGG", "X_AUDIO")


class ClientError(Exception):
    """An error of the client or of the model's code, as in sagemaker-containers."""


class UserError(Exception):
    """An error of the client or of the model's code, as in the XGBoost container."""


class AlgorithmError(Exception):
    """An error of the algorithm."""


class ScriptResponse:
    """An answer of output_fn or transform_fn, like Flask's: body, status, content type, headers."""

    default_mimetype = JSON

    def __init__(
        self,
        response: Any = None,
        accept: Any = None,
        status: Any = 200,
        headers: Any = None,
        mimetype: str | None = None,
        direct_passthrough: bool = False,
    ) -> None:
        del accept, direct_passthrough  # without effect, as in AWS's class
        parts = [response] if isinstance(response, (str, bytes, bytearray)) else response or ()
        self.data = b"".join(it.encode() if isinstance(it, str) else bytes(it) for it in parts)
        self.status_code = int(str(getattr(status, "value", status)).split()[0])
        self.headers = dict(headers or {})
        self.mimetype = mimetype or self.default_mimetype
        is_text = self.mimetype.startswith("text/") and "charset" not in self.mimetype
        self.content_type = f"{self.mimetype}; charset=utf-8" if is_text else self.mimetype

    def get_data(self, as_text: bool = False) -> Any:
        """The body."""
        return self.data.decode() if as_text else self.data


class ServingEnv:
    """The settings of this server, under AWS's names."""

    def __init__(self) -> None:
        program = os.environ.get("SAGEMAKER_PROGRAM", "inference.py")
        self.user_entry_point = program
        self.module_name = os.path.splitext(program)[0]
        self.module_dir = os.environ.get("SAGEMAKER_SUBMIT_DIRECTORY", "/opt/ml/model/code")
        self.model_dir = os.environ.get(MODEL_FOLDER, "/opt/ml/model")
        self.default_accept = os.environ.get(ACCEPT, JSON)
        self.model_server_workers = int(os.environ.get("SAGEMAKER_MODEL_SERVER_WORKERS", "1"))
        self.model_server_timeout = int(os.environ.get("SAGEMAKER_MODEL_SERVER_TIMEOUT", "60"))


def provide_content_types() -> dict[str, Any]:
    """Names of content types."""
    return {
        "JSON": JSON,
        "CSV": CSV,
        "OCTET_STREAM": OCTETS,
        "ANY": "*/*",
        "NPY": NPY,
        "UTF8_TYPES": [JSON, CSV],
    }


def provide_encoders() -> dict[str, Any]:
    """Codecs of NumPy arrays."""
    decoder: Any = importlib.import_module("sagemaker_inference.decoder")
    encoder: Any = importlib.import_module("sagemaker_inference.encoder")
    return {
        "decode": decode_array,
        "encode": encode_array,
        "csv_to_numpy": csv_to_numpy,
        "array_to_csv": array_to_csv,
        "npy_to_numpy": decode_npy,
        "json_to_numpy": decoder._json_to_numpy,
        "array_to_json": encoder._array_to_json,
        "array_to_npy": encoder._array_to_npy,
        "array_to_recordio_protobuf": recordio.encode_features,
    }


def provide_env() -> dict[str, Any]:
    """The server's settings."""
    return {"ServingEnv": ServingEnv, "model_dir": ServingEnv().model_dir}


def provide_errors() -> dict[str, Any]:
    """Errors of sagemaker-containers."""
    errors: Any = importlib.import_module("sagemaker_inference.errors")
    return {"ClientError": ClientError, "UnsupportedFormatError": errors.UnsupportedFormatError}


def provide_transformer() -> dict[str, Any]:
    """The default functions of sagemaker-containers."""
    return {
        "default_input_fn": decode_array,
        "default_output_fn": lambda prediction, accept: ScriptResponse(
            encode_array(prediction, accept), mimetype=accept
        ),
    }


def provide_worker() -> dict[str, Any]:
    """The response class of sagemaker-containers."""
    return {"Response": ScriptResponse}


def provide_xgboost_types() -> dict[str, Any]:
    """Names of content types of XGBoost."""
    return {
        "LIBSVM": LIBSVM,
        "X_LIBSVM": X_LIBSVM,
        "X_PARQUET": "application/x-parquet",
        "X_RECORDIO_PROTOBUF": RECORDIO,
    }


def provide_xgboost_encoder() -> dict[str, Any]:
    """Codecs of DMatrix."""
    return {
        "csv_to_dmatrix": csv_to_dmatrix,
        "libsvm_to_dmatrix": libsvm_to_dmatrix,
        "recordio_protobuf_to_dmatrix": recordio_protobuf_to_dmatrix,
        "decode": decode_dmatrix,
        "json_to_jsonlines": json_to_jsonlines,
    }


def provide_xgboost_errors() -> dict[str, Any]:
    """Errors of the XGBoost container."""
    return {"UserError": UserError, "AlgorithmError": AlgorithmError}


def provide_pytorch() -> dict[str, Any]:
    """The default handler of PyTorch."""
    base: Any = importlib.import_module("sagemaker_inference.default_inference_handler")
    bases = (PyTorchHandler, base.DefaultInferenceHandler)
    return {"DefaultPytorchInferenceHandler": type("DefaultPytorchInferenceHandler", bases, {})}


def provide_hugging_face_types() -> dict[str, Any]:
    """Names of content types of Hugging Face."""
    images = dict(zip(IMAGE_NAMES, (*default_huggingface.IMAGES, ANY_IMAGE)))  # noqa: B905 - of Python 3.10
    audio = dict(zip(AUDIO_NAMES, default_huggingface.AUDIO))  # noqa: B905 - of Python 3.10
    return {
        **provide_content_types(),
        **images,
        **audio,
        "VISION_TYPES": list(images.values()),
        "AUDIO_TYPES": list(audio.values()),
    }


def provide_hugging_face_codecs() -> dict[str, Any]:
    """Codecs of pipelines' inputs and predictions."""
    codecs = default_huggingface
    return {
        "decode": decode_inputs,
        "decode_json": codecs.from_json,
        "decode_csv": codecs.from_csv,
        "decode_image": codecs.from_image,
        "decode_audio": codecs.from_audio,
        "encode": encode_prediction,
        "encode_json": encode_json,
        "encode_csv": encode_csv,
        "encode_image": encode_image,
    }


def provide_mms() -> dict[str, Any]:
    """The error of multi-model-server."""
    errors: Any = importlib.import_module("sagemaker_inference.errors")
    base = errors.GenericInferenceToolkitError

    def initialize(self: Any, message: str, error_code: int = 500) -> None:
        base.__init__(self, error_code, message)

    return {"PredictionException": type("PredictionException", (base,), {"__init__": initialize})}


def decode_array(obj: Any, content_type: str) -> Any:
    """The array of a body of this type. Raises UnsupportedFormatError."""
    if media_type(content_type) == CSV:
        return csv_to_numpy(obj)
    return importlib.import_module("sagemaker_inference.decoder").decode(obj, content_type)


def encode_array(array_like: Any, content_type: str) -> Any:
    """The values as a body of this type. Raises UnsupportedFormatError."""
    if media_type(content_type) == CSV:
        return array_to_csv(array_like)
    return importlib.import_module("sagemaker_inference.encoder").encode(array_like, content_type)


def csv_to_numpy(string_like: Any, dtype: Any = None) -> Any:
    """The array of csv, with one dimension if there is one row or column, otherwise with two.

    Raises ClientError for bad csv, and for values that are not of the `dtype`.
    """
    numpy = importlib.import_module("numpy")
    text = string_like if isinstance(string_like, str) else bytes(string_like).decode()
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
        longest = max((len(cell) for row in rows for cell in row), default=0)
        num_bytes = CHARACTER_BYTES * longest * sum(map(len, rows))
        if num_bytes > MAX_ARRAY_BYTES:  # each cell of the array has room for the longest one
            raise ClientError(
                f"the csv has a cell of {longest} characters, which makes an array of {num_bytes} "
                f"bytes; at most {MAX_ARRAY_BYTES}"
            )
        array = numpy.array(rows).squeeze()
    except (csv.Error, ValueError) as error:
        raise ClientError(f"the csv cannot be read: {error}") from None
    try:
        return array.astype(float if dtype is None else dtype)
    except ValueError as error:
        if dtype is None:
            return array
        raise ClientError(f"the csv has a value that is not {dtype}: {error}") from None


def array_to_csv(array_like: Any) -> str:
    """One line per row. The values of an array with one dimension are rows."""
    values = importlib.import_module("numpy").array(array_like)
    rows = (values.reshape(-1, 1) if values.ndim < 2 else values).tolist()
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_to_dmatrix(input: Any, dtype: Any = None) -> Any:
    """The DMatrix of csv. The first line shows the separator."""
    rows = default_xgboost.from_csv(input)
    return to_dmatrix(rows if dtype is None else rows.astype(dtype))


def libsvm_to_dmatrix(string_like: Any) -> Any:
    """The DMatrix of libsvm."""
    return to_dmatrix(default_xgboost.from_libsvm(string_like))


def recordio_protobuf_to_dmatrix(string_like: Any) -> Any:
    """The DMatrix of records."""
    return to_dmatrix(default_xgboost.from_recordio(string_like))


def decode_dmatrix(obj: Any, content_type: str) -> Any:
    """The DMatrix of a body of this type. Raises UnsupportedFormatError."""
    kind = default_xgboost.NAMES.get(media_type(content_type))
    if kind is None:
        return raise_unsupported(content_type)
    return to_dmatrix(default_xgboost.READERS[kind](obj))


def to_dmatrix(rows: Any) -> Any:
    """The rows as a DMatrix."""
    return importlib.import_module("xgboost").DMatrix(rows)


def json_to_jsonlines(json_data: Any) -> bytes:
    """One line per value of the list in a JSON object with one key. Raises ValueError."""
    members = json_data if isinstance(json_data, dict) else json.loads(json_data)
    if len(members) != 1:
        raise ValueError(f"the JSON must have one key; it has {len(members)}")
    (values,) = members.values()
    return "".join(json.dumps(value) + "\n" for value in values).encode()


def decode_inputs(content: Any, content_type: str = JSON) -> Any:
    """The object of a body of this type. Raises UnsupportedFormatError."""
    read = default_huggingface.find_reader(media_type(content_type))
    return raise_unsupported(content_type) if read is None else read(content)


def encode_prediction(content: Any, accept_type: str = JSON) -> Any:
    """The prediction as a body of this type. Raises UnsupportedFormatError."""
    kind = media_type(accept_type)
    if kind == JSON:
        return encode_json(content)
    if kind == CSV:
        return encode_csv(content)
    if kind == NPY:
        return importlib.import_module("sagemaker_inference.encoder").encode(content, kind)
    if kind in (*default_huggingface.IMAGES, ANY_IMAGE):
        return encode_image(content, kind)
    return raise_unsupported(accept_type)


def encode_json(content: Any, accept_type: Any = None) -> str:
    """The prediction as JSON."""
    del accept_type
    return default_huggingface.to_json(content)


def encode_csv(content: Any, accept_type: Any = None) -> str:
    """The prediction as csv."""
    del accept_type
    return default_huggingface.to_csv(content)


def encode_image(image: Any, accept_type: str = "image/png") -> bytes:
    """The image in its format."""
    is_any = accept_type == ANY_IMAGE
    return default_huggingface.to_image(image, "image/png" if is_any else accept_type)


def raise_unsupported(content_type: str) -> Any:
    """Raise the toolkit's error for a content type."""
    errors: Any = importlib.import_module("sagemaker_inference.errors")
    raise errors.UnsupportedFormatError(content_type)
