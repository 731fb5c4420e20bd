"""Codes, statuses and texts of the runtime API, as AWS's recorded answers have them.

Written out once more: the constants of the code would change with it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.dataplane.routes_sample import COPIES, HERE, SNAPSHOT

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.errors import ServiceError
from hostelry.dataplane.balancing.destination import find_destination
from hostelry.dataplane.model_error import build_answer_error, build_no_copy_answer_error
from hostelry.dataplane.route_table import Destination, RouteTable
from hostelry.http1.reply import BrokenError, DeadlineError, TooLargeError, UpstreamError

TABLE = RouteTable(SNAPSHOT)
LATE = (
    "Your invocation timed out while waiting for a response from container {}. Review the latency "
    "metrics for each container in Amazon CloudWatch, resolve the issue, and try again."
)
SEE = (
    " See https://us-west-2.console.aws.amazon.com/cloudwatch/home?region=us-west-2"
    "#logEventViewer:group=/aws/sagemaker/Endpoints/models in account 111122223333 for more "
    "information."
)


def asked(endpoint_name: str, **members: Any) -> ServiceError:
    """The refusal of an invocation."""
    request = InvokeRequest(endpoint_name=endpoint_name, stream=False, **members)
    with pytest.raises(ServiceError) as refusal:
        find_destination(TABLE, HERE, request, 0.5)
    return refusal.value


def models() -> Destination:
    endpoint = TABLE.endpoint(HERE, "models")
    assert endpoint is not None
    return TABLE.variant(endpoint, endpoint.variants[0])


def answered(status: int, body: bytes, container: str | None = None) -> ServiceError:
    """The error for a container's answer."""
    return build_answer_error(models(), status, body, None, replace(COPIES[0], container=container))


def failed(error: UpstreamError, container: str | None = None) -> ServiceError:
    """The error for a container that gave no whole answer."""
    return build_no_copy_answer_error(models(), error, replace(COPIES[0], container=container))


@cases(
    "provoked, text",
    case("no such endpoint", lambda: asked("nope"),
        "Endpoint nope of account 111122223333 not found."),
    case("no component named", lambda: asked("llms"),
        "Inference Component Name header is required for "
                 "endpoints to which you plan to deploy inference components. Please include "
                 "Inference Component Name header or consider using SageMaker models."),
    case("a component at zero", lambda: asked("llms", inference_component_name="asleep"),
        "Inference Component"
                 " has no capacity to process this request. ApplicationAutoScaling may be in-"
                 "progress (if configured) or try to increase the capacity by invoking "
                 "UpdateInferenceComponentRuntimeConfig API."),
    case("no container named", lambda: asked("direct"),
        "Endpoint direct is a direct multi-container endpoint"
                 "; name the container to invoke as TargetContainerHostname: a, b, dark."),
    case("no such container", lambda: asked("direct", target_container_hostname="c"),
        "TargetContainerHost"
                 "name c is no container of endpoint direct; its containers are a, b, dark."),
    case("a container on another kind of endpoint",
        lambda: asked("models", target_container_hostname="c"), "Endpoint models is "
                 "not a direct multi-container endpoint; TargetContainerHostname c cannot be "
                 "invoked."),
    case("no model named", lambda: asked("many"),
        "Endpoint many is multi-model; name the model to invoke"
                 " as TargetModel, its path below the ModelDataUrl."),
)  # fmt: skip
def test_refusals_of_the_platform(provoked: Callable[[], ServiceError], text: str) -> None:
    error = provoked()
    assert (error.code, error.http_status, error.message) == ("ValidationError", 400, text)


@cases(
    "provoked, status, head, original",
    case("the container's 400", lambda: answered(400, b"bad"), 400,
        "client error (400) from primary", "bad"),
    case("a type that it does not take", lambda: answered(415, b"csv"), 415,
        "client error (415) from primary", "csv"),
    case("its 500", lambda: answered(500, b"bug"), 500, "server error (500) from primary", "bug"),
    case("its 507", lambda: answered(507, b"oom"), 507, "server error (507) from primary", "oom"),
    case("of a pipeline's container", lambda: answered(400, b"bad", "container-2"), 400,
        "client error (400) from container-2", "bad"),
    case("no answer in time", lambda: failed(DeadlineError("x")), 0,
        "server error (0) from primary", LATE.format("primary")),
    case("nor by a container with a name", lambda: failed(DeadlineError("x"), "prepare"), 0,
        "server error (0) from prepare", LATE.format("prepare")),
    case("it died", lambda: failed(BrokenError("x")), 0, "server error (0) from primary",
        "The model server closed the connection before it had answered; it may have " "died."),
    case("an answer too large", lambda: failed(TooLargeError("above 5 bytes")), 0,
        "server error (0) from primary", "above 5 bytes"),
)  # fmt: skip
def test_failures_of_a_container(
    provoked: Callable[[], ServiceError], status: int, head: str, original: str
) -> None:
    error = provoked()
    assert (error.code, error.http_status) == ("ModelError", 424)
    assert error.message == f'Received {head} with message "{original}".{SEE}'
    assert error.members == {
        "OriginalStatusCode": status,
        "OriginalMessage": original,
        "LogStreamArn": "arn:aws:logs:us-west-2:111122223333:log-group:/aws/sagemaker/Endpoints/"
        "models",
    }
