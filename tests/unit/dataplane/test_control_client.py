"""Calls to control for queued requests: their number is limited, and they raise no error."""

import asyncio

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.dataplane.control_client import MAX_ASKING, REMEMBERED_S, HttpControlClient, NoControl
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.domain.load import LoadKey, Wake
from hostelry.domain.scope import Scope
from hostelry.http1.reply import ConnectError, Reply, UpstreamError
from hostelry.http1.upstream import Timeouts

SCOPE = Scope("111122223333", "us-west-2")


def key(name: str = "llm", endpoint: str = "ep") -> LoadKey:
    return LoadKey(scope=SCOPE, endpoint_name=endpoint, variant_name="", component_name=name)


class ScriptedControl:
    """Answers every call with one status and body, after `gate` if it is set."""

    def __init__(self, status: int = 200, body: bytes = b'{"wanted":true}') -> None:
        self.status, self.body = status, body
        self.failure: UpstreamError | None = None
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.gate: asyncio.Event | None = None

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.heads.append(parts[0].decode())
        self.bodies.append(parts[1])
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        reply = Reply(FakeReplyConnection())
        reply.set_head(self.status, {})
        reply.add_chunk(self.body)
        reply.end(reusable=True)
        return reply


class Rig:
    def __init__(self, control: ScriptedControl) -> None:
        self.now_s = 10.0
        self.control = control
        self.line = HttpControlClient(control, "http://127.0.0.1:9", "the-key", lambda: self.now_s)

    def is_wanted(self, wanted: LoadKey | None = None) -> bool:
        return asyncio.run(self.line.is_wanted(wanted or key()))


def test_a_wake_carries_its_name_and_the_internal_key() -> None:
    control = ScriptedControl(204, b"")
    wake = Wake(key=key(), held=3, at=5.0)
    asyncio.run(Rig(control).line.wake(wake))
    assert control.heads[0].startswith("POST /internal/wake HTTP/1.1\r\nHost: localhost\r\n")
    assert "X-Hostelry-Key: the-key\r\n" in control.heads[0]
    assert msgspec.json.decode(control.bodies[0], type=Wake) == wake


def test_a_wake_that_control_does_not_take_is_logged_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = ScriptedControl()
    control.failure = ConnectError("control is away")
    asyncio.run(Rig(control).line.wake(Wake(key=key(), held=1, at=5.0)))
    assert "control is away" in caplog.text


def test_a_name_is_asked_for_with_all_that_it_is_known_by() -> None:
    control = ScriptedControl()
    assert Rig(control).is_wanted(key("a b&c", "e/f"))
    assert control.heads[0].startswith(
        "GET /internal/wanted?account=111122223333&region=us-west-2&endpoint=e%2Ff"
        "&component=a+b%26c HTTP/1.1\r\n"
    )


@cases(
    "status, body",
    case("no", 200, b'{"wanted":false}'),
    case("an answer that says nothing", 200, b"{}"),
    case("nonsense", 200, b"\xff["),
    case("a failure", 500, b'{"wanted":true}'),
)
def test_what_is_no_yes_is_a_no_and_is_remembered_for_a_moment(status: int, body: bytes) -> None:
    rig = Rig(ScriptedControl(status, body))
    assert not rig.is_wanted()
    rig.control.status, rig.control.body = 200, b'{"wanted":true}'
    assert not rig.is_wanted()
    assert rig.is_wanted(key("another"))
    rig.now_s += REMEMBERED_S + 0.01
    assert rig.is_wanted()


def test_a_control_that_is_away_knows_nothing() -> None:
    rig = Rig(ScriptedControl())
    rig.control.failure = ConnectError("away")
    assert not rig.is_wanted()
    assert not asyncio.run(NoControl().is_wanted(key()))


async def test_a_flood_of_names_asks_control_no_more_than_it_may() -> None:
    rig = Rig(ScriptedControl())
    rig.control.gate = asyncio.Event()
    asked = [asyncio.create_task(rig.line.is_wanted(key(f"n{number}"))) for number in range(5000)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(rig.control.heads) == MAX_ASKING
    rig.control.gate.set()
    assert sum(await asyncio.gather(*asked)) == MAX_ASKING
