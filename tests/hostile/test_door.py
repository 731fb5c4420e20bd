"""Attacks on a running gateway by raw sockets: without a key, or between client and gateway."""

import gzip
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases
from tests.hostile.process_memory import forget_peak, peak_bytes, resident_bytes
from tests.integration.gateway_rig import (
    EchoProcess,
    GatewayRig,
    component,
    components_endpoint,
    model_endpoint,
    running_gateway,
    snapshot_of,
)

from hostelry.aws.temporary_keys import Session, TokenSeal
from hostelry.base.clock import SystemClock

pytestmark = pytest.mark.integration
MIB = 1024 * 1024
INVOKE = "/endpoints/models/invocations"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MAX_BODY_BYTES = 2 * MIB
UNPROVEN_BYTES = 8 * MIB
MAX_CONNECTIONS = 40


@dataclass(frozen=True)
class Attacked:
    """A gateway with one echo copy, its limits small."""

    rig: GatewayRig
    copy: EchoProcess

    @property
    def cpu_s(self) -> float:
        """Processor time the gateway has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    @property
    def peak_bytes(self) -> int:
        """The most memory the gateway has had since `forget_peak`."""
        return peak_bytes(self.pid)

    @property
    def resident_bytes(self) -> int:
        """The memory that the gateway has now."""
        return resident_bytes(self.pid)

    @property
    def pid(self) -> int:
        """The gateway's process."""
        assert self.rig.process is not None
        return self.rig.process.pid

    def forget_peak(self) -> None:
        """Reset `peak_bytes`."""
        forget_peak(self.pid)

    def is_served(self) -> bool:
        """Whether an honest caller gets its answer over a new connection."""
        client = self.rig.client()
        answer = client.invoke_endpoint(EndpointName="models", Body=b"honest")
        return bool(answer["Body"].read() == b"honest")


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    copy = EchoProcess("echo")
    llms = components_endpoint(
        "llms", component("mine", (copy.route,)), component("other", (copy.route,))
    )
    snapshot = snapshot_of("1", model_endpoint("models", copy.route), llms)
    config = {
        "max_body_bytes": MAX_BODY_BYTES,
        "unproven_bytes": UNPROVEN_BYTES,
        "max_connections": MAX_CONNECTIONS,
    }
    try:
        with running_gateway(tmp_path_factory.mktemp("door"), snapshot, "reader", **config) as rig:
            yield Attacked(rig, copy)
    finally:
        copy.kill()


@pytest.fixture(scope="module")
def open_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayRig]:
    """A gateway that admits unsigned calls."""
    copy = EchoProcess("echo")
    snapshot = snapshot_of("1", model_endpoint("models", copy.route))
    try:
        root = tmp_path_factory.mktemp("open")
        with running_gateway(root, snapshot, insecure_no_auth=True) as rig:
            yield rig
    finally:
        copy.kill()


def status_of(answer: bytes) -> int:
    return int(answer.split()[1]) if answer else 0


def with_headers(request: bytes, *headers: str) -> bytes:
    """`request` with header lines added on the way, after it was signed."""
    head, end, body = request.partition(b"\r\n\r\n")
    added = "".join(f"\r\n{it}" for it in (*headers, "Connection: close")).encode("latin-1")
    return head + added + end + body


def gzip_form() -> bytes:
    """16 KB that become a form of 16 MiB."""
    return gzip.compress(b"Action=ListMetrics&Version=2010-08-01&a=" + b"b" * (16 * MIB - 100))


FORM = "Content-Type: application/x-www-form-urlencoded"
UNSIGNED = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("signature", ["none", "forged"])
def test_a_zipped_form_of_an_unknown_client_is_not_unpacked(
    attacked: Attacked, signature: str
) -> None:
    body = gzip_form()
    if signature == "none":
        request = (UNSIGNED % len(body)).encode() + body
    else:
        request = attacked.rig.signed("/", bytes(len(body)), service="monitoring")
        request = request[: -len(body)] + body
    request = with_headers(request, FORM, "Content-Encoding: gzip")
    attacked.rig.ask(request)
    attacked.forget_peak()
    before_bytes, before_s = attacked.peak_bytes, attacked.cpu_s
    answers = [attacked.rig.ask(request) for _ in range(20)]
    assert {status_of(it) for it in answers} == {403}
    assert all(b"<ErrorResponse" in it for it in answers)
    assert attacked.peak_bytes - before_bytes < 8 * MIB
    assert attacked.cpu_s - before_s < 2.0  # one form took as long


@cases(
    "header, status",
    case("a tenant", "X-Hostelry-Tenant: other", 403),
    case("an operation", "X-Amz-Target: SageMaker.DeleteEndpoint", 403),
    case("leave for another body", "X-Amz-Content-SHA256: UNSIGNED-PAYLOAD", 403),
    case("trace", "X-Amzn-Trace-Id: Root=1-5759e988-bd862e3fe1be46a994272793", 200),
)
def test_a_header_that_steers_cannot_be_added_on_the_way(
    attacked: Attacked, header: str, status: int
) -> None:
    own = {"X-Amzn-SageMaker-Inference-Component": "mine"}
    request = attacked.rig.signed("/endpoints/llms/invocations", b"{}", own)
    answer = attacked.rig.ask(with_headers(request, header))
    assert status_of(answer) == status
    assert (b"not signed" in answer) is (status == 403)


@cases(
    "role, tenant, principal",
    case("a role is its own tenant", "reader", "role/reader", "role/reader"),
    case("the account itself chooses a tenant alone", "", "another", None),
)
def test_temporary_keys_name_no_caller_but_their_own_to_a_model_server(
    attacked: Attacked, role: str, tenant: str, principal: str | None
) -> None:
    """The claims are signed, by keys as AssumeRole and GetSessionToken issue them."""
    claimed = {"X-Hostelry-Tenant": "another", "X-Hostelry-Principal": "role/another"}
    client = attacked.rig.client(**client_keys(attacked, role))

    def claim(request: Any, **_: object) -> None:
        for name, value in claimed.items():
            request.headers[name] = value

    client.meta.events.register("before-sign", claim)
    answer = client.invoke_endpoint(EndpointName="models", Body=b"{}", CustomAttributes="show")
    seen = json.loads(answer["Body"].read())["headers"]
    assert seen.get("x-hostelry-tenant") == tenant
    assert seen.get("x-hostelry-principal") == principal


def client_keys(attacked: Attacked, role: str) -> dict[str, str]:
    """Options of a client that signs by temporary keys of a role, or of the account if empty."""
    credentials = attacked.rig.credentials
    session = Session(
        access_key_id="ASIAHOSTILE",
        account_id=credentials.account_id,
        expires_at=int(SystemClock().now()) + 900,
        role_name=role,
        role_id="AROATEST" if role else "",
        session_name="mine" if role else "",
    )
    keys = TokenSeal(credentials.internal_key).issue(session)
    return {
        "aws_access_key_id": keys.access_key_id,
        "aws_secret_access_key": keys.secret_access_key,
        "aws_session_token": keys.session_token,
    }


def test_a_signed_component_cannot_be_replaced_or_doubled(attacked: Attacked) -> None:
    own = {"X-Amzn-SageMaker-Inference-Component": "mine"}
    request = attacked.rig.signed("/endpoints/llms/invocations", b"{}", own)
    assert status_of(attacked.rig.ask(with_headers(request))) == 200
    for altered in (
        with_headers(request.replace(b": mine", b": other")),
        with_headers(request, "x-amzn-sagemaker-inference-component: other"),
        with_headers(request.replace(b": mine", b": \xa0mine")),
    ):
        assert status_of(attacked.rig.ask(altered)) == 403


SMUGGLED = b"POST /endpoints/models/invocations HTTP/1.1\r\nHost: a\r\n\r\n"


@cases(
    "lines",
    case("both framings", ["Content-Length: 0", "Transfer-Encoding: chunked"]),
    case("in the other order", ["Transfer-Encoding: chunked", "Content-Length: 0"]),
    case("two lengths", ["Content-Length: 0", "Content-Length: 60"]),
    case("a list of lengths", ["Content-Length: 0, 60"]),
    case("a signed length", ["Content-Length: +0"]),
    case("a space before the colon", ["Content-Length : 0"]),
    case("an unknown coding", ["Transfer-Encoding: xchunked"]),
    case("chunked not last", ["Transfer-Encoding: chunked, identity"]),
    case("a coding with a control character", ["Transfer-Encoding:\tchunked\x0b"]),
    case("a folded framing", ["X: a", " Transfer-Encoding: chunked"]),
    case("a bare line feed", ["X: a\nContent-Length: 60"]),
    case("a bare carriage return", ["X: a\rContent-Length: 60"]),
    case("two hosts", ["Content-Length: 0", "Host: other"]),
)
def test_nothing_is_smuggled_behind_a_request(attacked: Attacked, lines: list[str]) -> None:
    head = "\r\n".join(["POST /endpoints/models/invocations HTTP/1.1", "Host: a", *lines, "", ""])
    answer = attacked.rig.ask(head.encode("latin-1") + b"0\r\n\r\n" + SMUGGLED)
    assert status_of(answer) == 400
    assert answer.count(b"\r\nServer: hostelry") == 1


@cases(
    "lines, status",
    case("its address", "Host: 127.0.0.1:8787", 200),
    case("its name", "Host: localhost", 200),
    case("a rebound name", "Host: evil.example:8787", 403),
    case("a name that looks like it", "Host: 127.0.0.1.evil.example", 403),
    case("any address", "Host: 0.0.0.0:8787", 403),
    case("a foreign page", "Host: localhost\r\nOrigin: http://evil.example", 403),
    case("a page from a file", "Host: localhost\r\nOrigin: null", 403),
)
@pytest.mark.parametrize("path", [INVOKE, "/", "/v1/models", "/metrics"])
def test_a_web_page_gets_nothing_from_a_gateway_without_keys(
    open_rig: GatewayRig, path: str, lines: str, status: int
) -> None:
    request = (
        f"POST {path} HTTP/1.1\r\n{lines}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    answer = open_rig.ask(request.encode())
    assert (status_of(answer) == 403) is (status == 403)


def test_an_unsigned_body_is_refused_before_it_is_sent(attacked: Attacked) -> None:
    confirmation = "/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-west-2:123456789012:t"
    posted = (INVOKE, "/", "/v1/completions", "/metrics", "/ping", "/nothing")
    requests = [
        f"{asked} HTTP/1.1\r\nHost: a\r\nContent-Length: {MAX_BODY_BYTES}\r\n\r\n".encode()
        for asked in (f"GET {confirmation}", *(f"POST {path}" for path in posted))
    ]
    for request in requests:
        with attacked.rig.connected(request) as connection:
            assert 400 <= status_of(connection.recv(65536)) < 500


def test_unverified_bodies_take_no_more_memory_than_their_budget(
    attacked: Attacked,
) -> None:
    body = bytes(MAX_BODY_BYTES)
    request = attacked.rig.signed(INVOKE, b"x" * len(body))
    part = request[: -len(body)] + body[: len(body) * 3 // 4]
    assert attacked.is_served()
    attacked.forget_peak()
    before_bytes = attacked.peak_bytes
    answers = b""
    with ExitStack() as held:
        flood = [held.enter_context(attacked.rig.connected(part)) for _ in range(16)]
        assert attacked.is_served()
        for connection in flood:
            connection.settimeout(0.2)
            with suppress(TimeoutError):
                answers += connection.recv(65536)
        assert attacked.is_served()
    assert b" 503 " in answers
    assert b"Retry-After: 1\r\n" in answers
    assert f"{UNPROVEN_BYTES} bytes".encode() in answers
    assert attacked.peak_bytes - before_bytes < 3 * UNPROVEN_BYTES


def test_bodies_of_requests_that_fail_or_are_given_up_leave_the_memory(attacked: Attacked) -> None:
    body = bytes(MAX_BODY_BYTES)
    failing = attacked.rig.signed("/endpoints/nowhere/invocations", body)
    slow = attacked.rig.signed(INVOKE, b"sleep 60 ".ljust(len(body)))
    assert attacked.is_served()
    before_bytes = attacked.resident_bytes
    with ExitStack() as held:
        for _ in range(8):  # their connections stay open
            connection = held.enter_context(attacked.rig.connected(failing))
            assert status_of(connection.recv(65536)) == 400
        for _ in range(16):
            with attacked.rig.connected(slow) as connection:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert attacked.is_served()
        assert attacked.resident_bytes - before_bytes < 6 * MAX_BODY_BYTES


def test_a_flood_of_connections_leaves_room_for_who_has_a_key(attacked: Attacked) -> None:
    kept = attacked.rig.client()
    kept.invoke_endpoint(EndpointName="models", Body=b"1")
    with ExitStack() as held:
        flood = [
            held.enter_context(attacked.rig.connected(b"POST / HTTP/1.1\r\nX: "))
            for _ in range(4 * MAX_CONNECTIONS)
        ]
        for _ in range(5):
            assert attacked.is_served()
            kept.invoke_endpoint(EndpointName="models", Body=b"2")
        assert sum(is_open(it) for it in flood) <= MAX_CONNECTIONS // 2


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_a_head_that_comes_byte_by_byte_ends(attacked: Attacked) -> None:
    with attacked.rig.connected(b"POST / HTTP/1.1\r\nX: ") as connection:
        connection.settimeout(1.0)
        for _ in range(20):
            connection.sendall(b"a")
            try:
                answer = connection.recv(65536)
            except TimeoutError:
                continue
            break
        assert status_of(answer) == 408


def test_tiny_chunks_and_many_requests_at_once_take_little_memory(attacked: Attacked) -> None:
    signed = attacked.rig.signed(INVOKE, b"")
    chunked = signed.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    attacked.forget_peak()
    before_bytes = attacked.peak_bytes
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(attacked.rig.connected(chunked + b"1\r\nx\r\n" * 400_000))
        pipelined = b"GET /ping HTTP/1.1\r\nHost:\r\n\r\n" * 9_000
        for _ in range(8):
            held.enter_context(attacked.rig.connected(pipelined))
        time.sleep(0.2)
        assert attacked.is_served()
    assert attacked.peak_bytes - before_bytes < 24 * MIB
