"""Requests of httpx clients to control, as they are sent by the client that chooses one."""

import asyncio
from pathlib import Path

import httpx
import pytest
from tests.cases import case, cases
from tests.unit.cluster.test_leader_proxy import Answering, Controls, reply

from hostelry.cluster.control_access import control_access, control_mounts
from hostelry.cluster.control_transport import ControlTransport
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry.http1.reply import ControlAwayError, Reply

OWN = "http://127.0.0.1:1"


def asked(answering: Answering) -> httpx.Response:
    controls = Controls()
    controls.answering[OWN] = answering

    async def main() -> httpx.Response:
        mounts = {OWN: ControlTransport(controls, OWN)}
        async with httpx.AsyncClient(mounts=mounts, trust_env=False) as client:
            return await client.post(f"{OWN}/a?b=c", headers={"X-Key": "k"}, content=b"body")

    return asyncio.run(main())


def test_a_request_and_its_answer() -> None:
    async def echoes(received: bytes) -> Reply:
        return reply(207, received, {"x-of": "control", "transfer-encoding": "chunked"})

    answer = asked(echoes)
    head, _, body = answer.content.partition(b"\r\n\r\n")
    assert (answer.status_code, answer.headers["x-of"], body) == (207, "control", b"body")
    assert head.startswith(b"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:1\r\n")
    assert b"X-Key: k\r\n" in head
    assert b"Content-Length: 4" in head


def test_no_control_that_answers() -> None:
    async def away(_: bytes) -> Reply:
        raise ControlAwayError("http://127.0.0.1:1: refused")

    with pytest.raises(httpx.ConnectError, match="refused"):
        asked(away)


@cases(
    "config",
    case("the records are in the home", UpConfig(control_port=1)),
    case(
        "the link finds the leader",
        UpConfig(control_port=1, store_url="postgresql://h/d", controls=("https://c@h:1",)),
    ),
)
def test_where_there_is_never_another_control_nothing_is_put_between(
    config: UpConfig, tmp_path: Path
) -> None:
    home, pool = Home(tmp_path), Controls()
    credentials = new_credentials("111122223333", "us-east-1")
    assert control_access(home, config, credentials, pool)(pool) is pool
    assert control_mounts(home, config, credentials) == {}
