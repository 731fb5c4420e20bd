import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hostelry.home.heartbeat import (
    Heartbeat,
    answer_heartbeats,
    is_listening,
    line_path,
    take_listener,
    wait_for_client,
)
from hostelry.home.home import SERVICE_VARIABLE

PATIENT_S, IMPATIENT_S = 10.0, 0.01


@pytest.fixture(params=["home", "h" * 120], ids=["a short path", "one too long for a socket"])
def service(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The name of a service, which this very process is."""
    folder = tmp_path / str(request.param)
    folder.mkdir()
    monkeypatch.setenv(SERVICE_VARIABLE, str(folder / "gateway-1"))
    return folder / "gateway-1"


async def received(pulse: Heartbeat) -> None:
    """Return once the service answers."""
    while not await pulse.ping(PATIENT_S):  # noqa: ASYNC110 - it sends no signal
        await asyncio.sleep(0)


def test_a_loop_that_turns_answers_each_question_of_each_supervisor(service: Path) -> None:
    async def work() -> list[bool]:
        answering = asyncio.create_task(answer_heartbeats())
        answers = []
        for _ in range(2):  # the second is the successor of one that was killed
            with Heartbeat(line_path(service), os.getpid()) as pulse:
                await received(pulse)
                answers += [await pulse.ping(PATIENT_S) for _ in range(3)]
        answering.cancel()
        return answers

    assert asyncio.run(work()) == [True] * 6
    assert line_path(service).stat().st_mode & 0o077 == 0
    assert SERVICE_VARIABLE not in os.environ, "what the service starts does not inherit it"


def test_an_answer_to_an_earlier_question_is_none(service: Path) -> None:
    async def work() -> list[bool]:
        pulse = Heartbeat(line_path(service), os.getpid())
        with socket.socket(socket.AF_UNIX) as listening, pulse:
            os.chdir(service.parent)  # the path may be too long
            listening.bind(line_path(service).name)
            listening.listen()
            missed = [await pulse.ping(IMPATIENT_S) for _ in range(2)]
            line, _ = listening.accept()
            with line:
                asking = asyncio.create_task(pulse.ping(PATIENT_S))
                line.sendall(b"1\n2\n")
                await asyncio.sleep(0)
                assert not asking.done()
                line.sendall(b"3\n")
                return [*missed, await asking]

    before = Path.cwd()
    try:
        assert asyncio.run(work()) == [False, False, True]
    finally:
        os.chdir(before)


def test_a_service_that_is_gone_answers_nothing_and_its_successor_does(service: Path) -> None:
    async def work() -> list[bool]:
        with Heartbeat(line_path(service), os.getpid()) as pulse:
            answers = [await pulse.ping(PATIENT_S)]
            first = asyncio.create_task(answer_heartbeats())
            await received(pulse)
            first.cancel()
            await asyncio.wait([first])
            await asyncio.sleep(0)
            answers.append(await pulse.ping(IMPATIENT_S))
            os.environ[SERVICE_VARIABLE] = str(service)
            second = asyncio.create_task(answer_heartbeats())
            await received(pulse)
            second.cancel()
            return answers

    assert asyncio.run(work()) == [False, False]


def test_a_predecessor_that_listens_in_its_place_answers_nothing(service: Path) -> None:
    async def work() -> bool:
        answering = asyncio.create_task(answer_heartbeats())
        with Heartbeat(line_path(service), os.getpid()) as pulse:
            await received(pulse)
        with Heartbeat(line_path(service), os.getppid()) as other:
            answered = await other.ping(PATIENT_S)
        assert is_listening(line_path(service), os.getpid())
        assert not is_listening(line_path(service), os.getppid())
        answering.cancel()
        return answered

    assert not asyncio.run(work())


def test_a_service_without_a_supervisor_does_not_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVICE_VARIABLE, raising=False)
    asyncio.run(answer_heartbeats())


@pytest.mark.parametrize("has_listener", [True, False], ids=["a gateway worker", "another service"])
def test_the_listening_socket_is_passed_on(service: Path, has_listener: bool) -> None:
    async def work() -> socket.socket | None:
        server = socket.create_server(("127.0.0.1", 0))
        with server as listener, Heartbeat(line_path(service), os.getpid()) as pulse:
            listener.setblocking(False)
            answering = asyncio.create_task(answer_heartbeats(listener if has_listener else None))
            await received(pulse)
            taken = await asyncio.to_thread(take_listener, line_path(service), PATIENT_S)
            answering.cancel()
            assert taken is None or taken.getsockname() == listener.getsockname()
            return taken

    taken = asyncio.run(work())
    assert (taken is not None) is has_listener
    if taken is not None:  # its first owner is gone, and no client is refused
        with taken, socket.create_connection(taken.getsockname()[:2], timeout=5):
            pass


def test_without_a_service_no_socket_is_passed_on(service: Path) -> None:
    assert take_listener(line_path(service), IMPATIENT_S) is None


def test_a_service_without_a_client_answers_its_supervisors_and_goes_on_with_them(
    service: Path,
) -> None:
    answers: list[bool] = []

    async def ask(address: tuple[str, int]) -> None:
        with Heartbeat(line_path(service), os.getpid()) as pulse:
            await received(pulse)
            with Heartbeat(line_path(service), os.getpid()) as passing:
                await received(passing)
            answers.extend([await pulse.ping(PATIENT_S) for _ in range(3)])
            with socket.create_connection(address, timeout=PATIENT_S):
                answers.extend([await pulse.ping(PATIENT_S) for _ in range(3)])

    async def serve(listener: socket.socket) -> None:
        lines = wait_for_client(listener)
        assert lines is not None
        answering = asyncio.create_task(answer_heartbeats(lines=lines))
        await asyncio.to_thread(asking.join)
        answering.cancel()

    handlers = [signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGINT)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        asking = threading.Thread(target=lambda: asyncio.run(ask(address)))
        asking.start()
        asyncio.run(serve(listener))
    assert answers == [True] * 6, "not one is missed when the event loop takes over"
    assert [signal.getsignal(it) for it in (signal.SIGTERM, signal.SIGINT)] == handlers


def test_a_service_that_waits_for_a_client_ends_by_sigterm(service: Path) -> None:
    program = """
import socket
from hostelry.home.heartbeat import wait_for_client
wait_for_client(socket.create_server(("127.0.0.1", 0)))
"""
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            with Heartbeat(line_path(service), process.pid) as pulse:
                asyncio.run(received(pulse))
            process.terminate()
            assert process.wait(PATIENT_S) == -signal.SIGTERM
        finally:
            process.kill()


def test_a_service_without_a_supervisor_waits_for_no_client(
    service: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv(SERVICE_VARIABLE, str(service.parent / "missing" / "mirror"))
        assert wait_for_client(listener) is None, "no socket can be made for its supervisor"
        monkeypatch.delenv(SERVICE_VARIABLE)
        assert wait_for_client(listener) is None
