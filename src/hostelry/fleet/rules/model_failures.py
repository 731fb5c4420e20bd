"""Answers by which servers say that the model's own code failed on a request. Pure.

They prove as much as a refusal does: the server serves the route, and has a worker with the model.

server                             status  body
---------------------------------  ------  -------------------------------------------------------
multi-model-server, TorchServe     503     "Prediction failed", of the type InternalServerException
SageMaker's inference toolkit      500     a traceback of its transformer, not of the model's load

Source: the error of a failed batch in awslabs/multi-model-server, WorkLoadManager's Job, which
TorchServe has too; aws/sagemaker-inference-toolkit, transformer.py `handle_error`.
"""

import msgspec

from hostelry.base.json import decode

TRANSFORMER = b"sagemaker_inference/transformer.py"
LOADING = b"in validate_and_initialize"  # it loads a model with the first request, if need be


class _ServersError(msgspec.Struct):
    """An error of multi-model-server and TorchServe."""

    type: str = ""
    message: str = ""


FAILED = _ServersError(type="InternalServerException", message="Prediction failed")


def is_model_failure(status: int | None, body: bytes) -> bool:
    """Whether the model's code ran on the request, and failed."""
    if status == 500:
        return TRANSFORMER in body and LOADING not in body
    if status != 503:
        return False
    try:
        return decode(body, _ServersError) == FAILED
    except msgspec.DecodeError:
        return False
