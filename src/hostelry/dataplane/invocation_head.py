"""The head of a request to a copy: SageMaker's container contract, the request's id, our terms."""

from collections.abc import Iterable, Mapping

from hostelry.aws.runtime import InvokeRequest
from hostelry.base.http import HttpRequest
from hostelry.dataplane.balancing.pipeline import PipelineStep
from hostelry.dataplane.route_table import Destination
from hostelry.dataplane.tracing.call_trace import TENANT
from hostelry.graph.step_report import STEPS_HEADER

# Copies do not check the Host header.
_COMMON = "HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
ADAPTER_IDENTIFIER = "X-Amzn-SageMaker-Adapter-Identifier"
ADAPTER_ALIAS = "X-Amzn-SageMaker-Adapter-Alias"
FORWARDED = ("X-Amzn-SageMaker-Forwarded-Api", "InvokeEndpoint")
FORWARDED_STREAM = (FORWARDED[0], "InvokeEndpointWithResponseStream")
TENANTS = ("role/", "user/")  # the prefixes of principals that are tenants themselves
PRINCIPAL = "x-hostelry-principal"
# Headers that are forwarded on any route: who sends it (as the gateway verified it), tenant,
# deadline, whether unknown fields are refused, the calls of graphs above this one, and the client's
# trace (W3C Trace Context), unchanged.
TERMS = {
    name.lower(): name
    for name in (
        "X-Hostelry-Principal",
        "X-Hostelry-Tenant",
        "X-Hostelry-First-Token-Deadline-S",
        "X-Hostelry-Strict-Fields",
        "X-Hostelry-Graph-Path",
        "traceparent",
        "tracestate",
    )
}
# A copy's note on unknown fields of a request. It is in its answers to the client on any route.
IGNORED_FIELDS = "x-hostelry-ignored-fields"
# The report of a graph, or of the LLM server, on its steps. It is traced, and sent to no client.
STEPS = STEPS_HEADER.lower()


def invocation_head(
    invocation: InvokeRequest,
    destination: Destination,
    request: HttpRequest,
    request_id: str,
    model_id: str | None = None,
) -> bytes:
    """Build ``POST /invocations`` for `invocation`, parsed from `request`, to a copy.

    For a model of a multi-model copy it is ``POST /models/ID/invoke``. For a pipeline it is for the
    first container, whose answer is never streamed.
    """
    streams = invocation.stream and not destination.is_pipeline
    return post_head(
        _path(model_id),
        len(request.body),
        (
            FORWARDED_STREAM if streams else FORWARDED,
            ("Content-Type", invocation.content_type),
            ("Accept", invocation.accept),
            ("X-Amzn-SageMaker-Custom-Attributes", invocation.custom_attributes),
            ("X-Amzn-SageMaker-Inference-Id", invocation.inference_id),
            ("X-Amzn-SageMaker-Session-Id", invocation.session_id),
            ("X-Amzn-SageMaker-Target-Model", invocation.target_model),
            (ADAPTER_IDENTIFIER, destination.adapter_id),
            (ADAPTER_ALIAS, destination.adapter_alias),
            ("x-request-id", request_id),
            *build_term_headers(request),
        ),
    )


def step_head(
    invocation: InvokeRequest,
    step: PipelineStep,
    request: HttpRequest,
    request_id: str,
    model_id: str | None = None,
) -> bytes:
    """Build the head for a further container of a pipeline, as `invocation_head` does."""
    return post_head(
        _path(model_id),
        len(step.body),
        (
            FORWARDED_STREAM if invocation.stream and step.is_last else FORWARDED,
            ("Content-Type", step.content_type),
            ("Content-Encoding", step.content_encoding),
            ("Accept", invocation.accept),
            ("X-Amzn-SageMaker-Inference-Id", invocation.inference_id),
            ("X-Amzn-SageMaker-Session-Id", invocation.session_id),
            ("X-Amzn-SageMaker-Target-Model", invocation.target_model),
            ("x-request-id", request_id),
            *build_term_headers(request),
        ),
    )


def _path(model_id: str | None) -> str:
    return "/invocations" if model_id is None else f"/models/{model_id}/invoke"


def build_term_headers(request: HttpRequest) -> list[tuple[str, str]]:
    """The caller's headers of `TERMS`, as sent to a copy."""
    given = request.headers
    return [(name, given[received]) for received, name in TERMS.items() if received in given]


def build_principal_headers(principal: str) -> dict[str, str]:
    """The headers of `TERMS` that name to a copy the caller that a request counts for."""
    if not principal:
        return {}
    is_tenant = principal.startswith(TENANTS)
    return {TERMS[PRINCIPAL]: principal, **({TERMS[TENANT]: principal} if is_tenant else {})}


def find_note_headers(answered: Mapping[str, str]) -> dict[str, str]:
    """What the headers of a copy's answer say of unknown fields, for the client."""
    fields = answered.get(IGNORED_FIELDS)
    return {} if fields is None else {IGNORED_FIELDS: fields}


def post_head(path: str, body_bytes: int, headers: Iterable[tuple[str, str | None]]) -> bytes:
    """The head of a POST to a copy but for its end (`head_end`), which is each copy's own.

    Headers without a value are left out.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers if value is not None])
    return f"POST {path} {_COMMON}{body_bytes}\r\n{lines}".encode("latin-1", "replace")
