"""Sessions through a real gateway: three copies that each know their own sessions only."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.stack import wait_for_gateway
from botocore.exceptions import ClientError
from tests.integration.gateway_rig import (
    FakeControl,
    GatewayRig,
    component,
    components_endpoint,
    model_endpoint,
    running_gateway,
    snapshot_of,
    until,
)

from hostelry.base.ports import free_port
from hostelry.domain.routes import CopyRoute, RouteSnapshot
from hostelry.home.ports import bind

pytestmark = pytest.mark.integration
PROGRAM = Path(__file__).parent / "servers" / "session_server.py"
NEW = {"requestType": "NEW_SESSION"}
NUM_SESSIONS = 40  # enough that by chance each copy has a session


class SessionProcess:
    """One session server. Its sessions live for `lifetime_s`."""

    def __init__(self, name: str, lifetime_s: float = 1200.0) -> None:
        port = free_port()
        self.route = CopyRoute(id=name, address=f"http://127.0.0.1:{port}")
        command = [sys.executable, str(PROGRAM), str(port), str(lifetime_s)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Rig:
    """A gateway over `copies`, and a client that speaks of sessions."""

    def __init__(self, gateway: GatewayRig, copies: list[SessionProcess]) -> None:
        self.gateway = gateway
        self.copies = copies
        self.client = gateway.client()

    def ask(self, session_id: str, body: dict[str, Any], endpoint: str = "talks") -> Any:
        """The whole answer, with `said` being its body."""
        given = {"InferenceComponentName": "base"} if endpoint == "llms" else {}
        answer = self.client.invoke_endpoint(
            EndpointName=endpoint, SessionId=session_id, Body=json.dumps(body), **given
        )
        return answer | {"said": json.loads(answer["Body"].read())}

    def open(self, endpoint: str = "talks", **more: Any) -> tuple[str, int]:
        """A new session's id, and the process that holds it."""
        answer = self.ask("NEW_SESSION", NEW | more, endpoint)
        return answer["NewSessionId"].partition(";")[0], answer["said"]["pid"]

    def refusal(self, session_id: str, endpoint: str = "talks") -> dict[str, Any]:
        """The error that the session's next request meets."""
        with pytest.raises(ClientError) as failure:
            self.ask(session_id, {"said": 1}, endpoint)
        error: dict[str, Any] = failure.value.response["Error"]
        return error


def routes(version: str, copies: list[SessionProcess]) -> RouteSnapshot:
    listed = tuple(it.route for it in copies)
    return snapshot_of(
        version,
        model_endpoint("talks", *listed),
        components_endpoint("llms", component("base", listed)),
    )


@contextlib.contextmanager
def running(root: Path, *copies: SessionProcess) -> Iterator[Rig]:
    """A gateway over `copies`. Everything is ended afterwards."""
    try:
        with running_gateway(root, routes("1", list(copies))) as gateway:
            yield Rig(gateway, list(copies))
    finally:
        for copy in copies:
            copy.kill()


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    copies = [SessionProcess(f"c-{number}") for number in range(3)]
    with running(tmp_path_factory.mktemp("sessions"), *copies) as found:
        yield found


@pytest.mark.parametrize("endpoint", ["talks", "llms"])
def test_every_request_of_a_session_reaches_the_copy_that_holds_it(rig: Rig, endpoint: str) -> None:
    opened = [rig.open(endpoint) for _ in range(NUM_SESSIONS)]
    assert len({pid for _, pid in opened}) == 3
    for number in range(3):
        for session_id, pid in opened:
            answer = rig.ask(session_id, {"said": number}, endpoint)
            assert answer["said"] == {"pid": pid, "said": list(range(number + 1))}


def test_a_stream_of_a_session_reaches_its_copy_too(rig: Rig) -> None:
    for _ in range(6):
        session_id, pid = rig.open()
        answer = rig.client.invoke_endpoint_with_response_stream(
            EndpointName="talks", SessionId=session_id, Body=b'{"said": 1}'
        )
        parts = [event["PayloadPart"]["Bytes"] for event in answer["Body"]]
        assert json.loads(b"".join(parts)) == {"pid": pid, "said": [1]}


def test_a_session_that_was_closed_is_known_no_more(rig: Rig) -> None:
    session_id, _ = rig.open()
    assert rig.ask(session_id, {"requestType": "CLOSE"})["ClosedSessionId"] == session_id
    error = rig.refusal(session_id)
    assert error["Code"] == "ValidationError"
    assert f"Session {session_id} is not known on endpoint talks" in error["Message"]


def test_a_session_that_an_older_container_opens_gets_the_newer_name(rig: Rig) -> None:
    session_id, pid = rig.open(older=True)
    assert rig.ask(session_id, {"said": 1})["said"] == {"pid": pid, "said": [1]}


def test_a_session_of_another_endpoint_or_of_none_is_refused(rig: Rig) -> None:
    session_id, _ = rig.open("talks")
    for unknown, endpoint in ((session_id, "llms"), ("made-up", "talks")):
        error = rig.refusal(unknown, endpoint)
        assert error["Code"] == "ValidationError"
        assert f"Session {unknown} is not known" in error["Message"]


def test_a_session_whose_copy_died_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    copies = [SessionProcess(f"c-{number}") for number in range(2)]
    with running(tmp_path, *copies) as rig:
        opened = [rig.open() for _ in range(NUM_SESSIONS)]
        lost = copies[0]
        lost.kill()
        held = [session_id for session_id, pid in opened if pid == lost.process.pid]
        # While control has not seen it yet: no other copy is asked, which would not know it.
        assert rig.refusal(held[0])["Code"] == "ServiceUnavailable"
        control = FakeControl(rig.gateway)
        try:
            control.publish(routes("2", copies[1:]))
            until(lambda: "has ended" in reported(rig, held[0]), "the copy left the routes")
        finally:
            control.stop()
        error = rig.refusal(held[0])
        assert error["Code"] == "ValidationError"
        assert f"Session {held[0]} on endpoint talks has ended" in error["Message"]
        for session_id, pid in opened:
            if session_id not in held:
                assert rig.ask(session_id, {"said": 1})["said"]["pid"] == pid


def test_a_session_ends_when_its_container_set(tmp_path: Path) -> None:
    with running(tmp_path, SessionProcess("c-short", lifetime_s=1.0)) as rig:
        session_id, _ = rig.open()
        until(lambda: "is not known" in reported(rig, session_id), "the session expired")


class Workers(GatewayRig):
    """A gateway of two workers on one socket, as `up` keeps them."""

    def __init__(self, root: Path, copies: list[SessionProcess]) -> None:
        super().__init__(root, gateway_workers=2)
        self.home.run.mkdir(exist_ok=True)
        self.publish(routes("1", copies))
        self.listening = bind(self.config.host, self.config.gateway_port)
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_all(self) -> None:
        fd = self.listening.fileno()
        argv = [sys.executable, "-m", "hostelry.services.gateway", "--home", str(self.home.root)]
        with self.log.open("ab") as log:
            self.workers = [
                subprocess.Popen(
                    [*argv, "--worker", str(number), "--listen-fd", str(fd)],
                    stderr=log,
                    pass_fds=(fd,),
                )
                for number in (1, 2)
            ]
        for worker in self.workers:
            wait_for_gateway(self.config.gateway_url, worker)

    def kill_workers(self, *numbers: int) -> None:
        for number in numbers:
            self.workers[number - 1].kill()
            self.workers[number - 1].wait()

    def pid_of(self, session_id: str) -> int:
        """The process that answers the session over a new connection."""
        body = json.dumps({"said": 1}).encode()
        headers = {"X-Amzn-SageMaker-Session-Id": session_id, "Connection": "close"}
        answer = self.ask(self.signed("/endpoints/talks/invocations", body, headers))
        return int(json.loads(answer.partition(b"\r\n\r\n")[2])["pid"])


def test_every_worker_knows_a_session_also_after_all_of_them_died(tmp_path: Path) -> None:
    copies = [SessionProcess(f"c-{number}") for number in range(2)]
    gateway = Workers(tmp_path, copies)
    try:
        gateway.start_all()
        rig = Rig(gateway, copies)
        opened = [rig.open() for _ in range(8)]
        for killed, left in ((1, 2), (2, 1)):
            gateway.kill_workers(killed)  # only the other one can answer now
            assert [gateway.pid_of(session_id) for session_id, _ in opened] == [
                pid for _, pid in opened
            ]
            gateway.kill_workers(left)
            gateway.start_all()
    finally:
        gateway.close_clients()
        gateway.kill_workers(1, 2)
        gateway.listening.close()
        for copy in copies:
            copy.kill()


def reported(rig: Rig, session_id: str) -> str:
    """The result of the session's next request: an error's message, or nothing."""
    try:
        rig.ask(session_id, {"said": 1})
    except ClientError as failure:
        return str(failure)
    return ""
