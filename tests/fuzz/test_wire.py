"""The wire protocols and event streams: a value or a modelled refusal, nothing else."""

from functools import cache
from random import Random
from typing import Any

from botocore.eventstream import EventStreamBuffer, ParserError
from tests.contract.wire.conftest import AnyValue, Client
from tests.fuzz.conftest import Cases
from tests.fuzz.mutation import mutated, mutated_text

from hostelry.api.operations import OPERATIONS
from hostelry.aws.call import ApiCall, parse_call, serialize_error
from hostelry.aws.eventstream import payload_part, stream_exception
from hostelry.aws.models import operation_model, service_model
from hostelry.aws.runtime import InvokeRequest, parse_invocation
from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest

PROTOCOLS = ("json", "query", "smithy-rpc-v2-cbor", "rest-json", "ec2")
ASKED = tuple(
    (service, operation, protocol)
    for service, operation in sorted(OPERATIONS)
    for protocol in PROTOCOLS
    if protocol in service_model(service).metadata["protocols"]
)
SERIALIZED = 100  # bodies of each protocol that are altered over and over
WORDS = (
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"null", b"true", b"-", b"1e999", b"9" * 400),
    *(b"&", b"=", b"%", b"%00", b"+", b".", b".member.1", b".member.99999999999", b".entry.1.key"),
    *(b"\xff", b"\xbf", b"\x9f", b"\x5f", b"\xc1", b"\xd9\xd9\xf7", b"\xfb" + b"\x7f" * 8),
    *(b"\xdb\xff\xff\xff\xff\xff\xff\xff\xff", b"\x1f\x8b\x08", b"\\ud800", b"[" * 200),
)
FIELDS = ("MaxResults=2147483648", "MaxResults=-1", "MaxResults=", "NextToken=%ff", "=", "%")
PATHS = ("/endpoints/e/invocations", "/endpoints/e/invocations-response-stream")
PARTS = ("/", "%", "%2F", "%00", "..", "\u00e9", "\ud7ff", "invocations", "endpoints", "a" * 70)
STEERING = (
    "x-amzn-sagemaker-target-variant",
    "x-amzn-sagemaker-inference-component",
    "x-amzn-sagemaker-session-id",
    "x-amzn-sagemaker-custom-attributes",
    "accept",
)


@cache
def request_of(number: int, protocol: str) -> HttpRequest:
    """One of the requests that botocore makes in `protocol`."""
    random = Random(f"{protocol} {number}")
    service, operation, _ = random.choice([it for it in ASKED if it[2] == protocol])
    shape = operation_model(service, operation).input_shape
    any_value = AnyValue(random=random, full=False, constrained=False)
    params: Any = {} if shape is None else any_value.of(shape)
    return Client(service=service, operation=operation, protocol=protocol).request(params)


def can_be_written(error: ServiceError, request: HttpRequest) -> bool:
    """Whether the refusal can be written in the protocol of `request`."""
    response = serialize_error(error, None, "id-1", request)
    return 400 <= response.status < 500 and bool(response.body)


def test_an_altered_call_is_a_value_or_refused(cases: Cases) -> None:
    for random in cases(8_000):
        sent = request_of(random.randrange(SERIALIZED), random.choice(PROTOCOLS))
        headers = dict(sent.headers)
        if random.random() < 0.1:
            name = random.choice(("content-type", "content-encoding", "x-amz-target"))
            headers[name] = random.choice(("gzip", "", "application/cbor", "SageMaker.ListModels"))
        body = mutated(sent.body, random, WORDS)
        query = f"{sent.query}&{random.choice(FIELDS)}" if random.random() < 0.3 else sent.query
        request = HttpRequest(sent.method, sent.path, query, headers, body)
        try:
            outcome: ApiCall | bool = parse_call(request, "id-1")
        except ServiceError as error:
            outcome = can_be_written(error, request)
        assert outcome


def test_an_altered_invocation_is_a_value_or_refused(cases: Cases) -> None:
    for random in cases(15_000):
        path = random.choice(PATHS)
        path = mutated_text(path, random, PARTS) if random.random() < 0.7 else path
        headers = {
            name: mutated_text("value-1", random, (*PARTS, " ", "\t", "=", "\x7f"))
            for name in random.sample(STEERING, random.randint(0, 3))
        }
        request = HttpRequest(random.choice(("POST", "POST", "GET")), path, "", headers)
        try:
            outcome: InvokeRequest | bool = parse_invocation(request)
        except ServiceError as error:
            outcome = can_be_written(error, HttpRequest("POST", "/endpoints/e/invocations"))
        assert outcome


def decoded(frames: bytes) -> list[tuple[str | None, bytes]] | None:
    """Type and payload of each event as botocore reads it. None if it refuses the event."""
    buffer = EventStreamBuffer()
    buffer.add_data(frames)
    try:
        return [(it.headers.get(":event-type"), it.payload) for it in buffer]
    except ParserError:
        return None


def test_event_streams_are_read_back_and_a_broken_frame_is_never_another_one(cases: Cases) -> None:
    for random in cases(5_000):
        parts = [random.randbytes(random.choice((1, 5, 300))) for _ in range(random.randint(1, 3))]
        frames = b"".join(payload_part(it) for it in parts)
        sent = [("PayloadPart", it) for it in parts]
        assert decoded(frames) == sent
        failure = stream_exception("ModelStreamError", mutated_text("m", random, PARTS), "Code")
        assert decoded(failure) is not None
        at = random.randrange(len(frames))
        flipped = frames[:at] + bytes([frames[at] ^ random.randint(1, 255)]) + frames[at + 1 :]
        read = decoded(flipped)
        assert read is None or read == sent[: len(read)]
