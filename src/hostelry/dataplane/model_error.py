"""ModelError: the answer of InvokeEndpoint to a container's failure.

Source: SageMaker runtime API reference, InvokeEndpoint, ModelError. The texts are recorded from it.
"""

from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.model_balancer import TargetModelRefusedError
from hostelry.dataplane.route_table import Destination
from hostelry.domain.log_source import component_group, endpoint_group
from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import (
    ContainerDownError,
    DeadlineError,
    TooLargeError,
    UpstreamError,
)

CONTAINER = "primary"
MAX_ORIGINAL_CHARACTERS = 4096
BUSY_STATUSES = (429, 503)
TIMED_OUT = (
    "Your invocation timed out while waiting for a response from container {}. Review the "
    "latency metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
)
DIED = "The model server closed the connection before it had answered; it may have died."


class ModelError(ServiceError):
    """A container's failure. `retry_after` is the container's Retry-After if it is only busy."""

    retry_after: str | None = None


def build_answer_error(
    destination: Destination,
    status: int,
    body: bytes,
    retry_after: str | None = None,
    copy: CopyRoute | None = None,
) -> ModelError:
    """Build the error for an answer of `copy` whose status is not 2xx."""
    error = _model_error(destination, status, body.decode("utf-8", "replace"), copy)
    if status in BUSY_STATUSES:
        error.retry_after = retry_after
    return error


def build_no_copy_answer_error(
    destination: Destination, error: UpstreamError, copy: CopyRoute | None = None
) -> ModelError:
    """Build the error for a container of `copy` that took the request and gave no whole answer."""
    copy = copy or error.copy
    return _model_error(destination, 0, _reason(error, copy), copy)


def explain_timeout(copy: CopyRoute | None) -> str:
    """Explain that the container gave no whole answer in time."""
    return TIMED_OUT.format(_name(copy))


def build_model_refusal(destination: Destination, refusal: TargetModelRefusedError) -> ServiceError:
    """Build the error for a model of a multi-model endpoint that cannot be loaded.

    not below ModelDataUrl, or no such object   ValidationError (400)
    not loaded in time                          ModelNotReadyException (429)
    loading failed                              ModelError (424)
    """
    if refusal.status == 400:
        return ServiceError("ValidationError", str(refusal), 400)
    if refusal.status == 429:
        return ServiceError("ModelNotReadyException", str(refusal), 429)
    return _model_error(destination, refusal.model_status or 0, str(refusal))


def log_group(destination: Destination) -> str:
    """The container's log group in CloudWatch. An adapter logs to its base component's group."""
    base = destination.base_key
    name = destination.component_name if base is None else base.component_name
    return endpoint_group(destination.endpoint_name) if name is None else component_group(name)


def _reason(error: UpstreamError, copy: CopyRoute | None) -> str:
    if isinstance(error, DeadlineError):
        return explain_timeout(copy)
    return str(error) if isinstance(error, TooLargeError | ContainerDownError) else DIED


def _name(copy: CopyRoute | None) -> str:
    """The container's name if its model has several."""
    return (None if copy is None else copy.container) or CONTAINER


def _model_error(
    destination: Destination, status: int, original: str, copy: CopyRoute | None = None
) -> ModelError:
    scope = destination.scope
    original = original[:MAX_ORIGINAL_CHARACTERS]
    side = "client" if 300 <= status < 500 else "server"
    group = log_group(destination)
    log = f"arn:aws:logs:{scope.region}:{scope.account}:log-group:{group}"
    if copy is not None and copy.log_stream is not None:
        log += f":log-stream:{copy.log_stream}"
    message = (
        f'Received {side} error ({status}) from {_name(copy)} with message "{original}". '
        f"See https://{scope.region}.console.aws.amazon.com/cloudwatch/home?region={scope.region}"
        f"#logEventViewer:group={group} in account {scope.account} for more information."
    )
    return ModelError(
        "ModelError",
        message,
        424,
        {
            "OriginalStatusCode": status,
            "OriginalMessage": original,
            "LogStreamArn": log,
        },
    )
