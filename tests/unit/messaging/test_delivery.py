"""Delivery: lanes, retries, dead letters, and deliveries after a kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.cases import case, cases
from tests.message_rig import HERE, MessageRig

from hostelry.base.errors import RetryableError
from hostelry.domain.messaging import Queue
from hostelry.messaging import deliveries as deliveries_module
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.tables import MessageTables
from hostelry.store.protocol import StoreUnavailable

HOOK = "http://hook.example/a"
RETRIES = json.dumps({"healthyRetryPolicy": {"numRetries": 2, "minDelayTarget": 5}})


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop and its threads run until `condition`. Fails after about ten seconds."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not come true")


def deliver(rig: MessageRig, condition: Callable[[], bool]) -> None:
    """Run the loop until `condition`."""

    async def run() -> None:
        task = asyncio.create_task(rig.loop.run())
        try:
            await until(condition)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def nothing_waits(rig: MessageRig) -> Callable[[], bool]:
    return lambda: not rig.deliveries.subscriptions()


def queue(rig: MessageRig, name: str = "dead") -> Queue:
    made = Queue(scope=HERE, name=name, created_at=0.0, modified_at=0.0)
    rig.state.queues.put(HERE, name, made, expect=None)
    return made


def test_an_address_gets_the_notification_with_snss_headers() -> None:
    rig = MessageRig()
    topic = rig.topic()
    subscription = rig.subscription(topic, "http", HOOK)
    sent = rig.services.topics.publish(topic.arn, "subject", "text")
    deliver(rig, nothing_waits(rig))
    ((address, headers, body),) = rig.subscriber.posted
    assert address == HOOK
    assert headers["x-amz-sns-message-type"] == "Notification"
    assert headers["x-amz-sns-subscription-arn"] == subscription.arn
    assert (json.loads(body)["MessageId"], json.loads(body)["Message"]) == (sent, "text")


@cases(
    "answers, posts, letters",
    case("accepted at once", [200], 1, 0),
    case("accepted at the last attempt", [500, 503, 200], 3, 0),
    case("a time-out and 429 are tried again", [TimeoutError(), 429], 3, 0),
    case("given up after the policy's retries", [500, 500, 500], 3, 1),
    case("a refusal is final", [403], 1, 1),
    case("a redirect is no acceptance", [302, 302, 302], 3, 1),
)
def test_attempts_follow_the_policy(
    answers: list[int | Exception], posts: int, letters: int
) -> None:
    rig = MessageRig()
    topic, dead = rig.topic(), queue(rig)
    rig.subscriber.answers = list(answers)
    redrive = json.dumps({"deadLetterTargetArn": dead.arn})
    rig.subscription(topic, "http", HOOK, DeliveryPolicy=RETRIES, RedrivePolicy=redrive)
    began = rig.clock.now()
    rig.services.topics.publish(topic.arn, None, "text")
    deliver(rig, nothing_waits(rig))
    assert len(rig.subscriber.posted) == posts
    counts = rig.services.queues.counts(dead.arn, rig.clock.now(), 0.0)
    assert counts.visible == letters
    if posts == 3:
        assert rig.clock.now() >= began + 5.0, "retries wait"


@cases(
    "record, answer, posts",
    case("a delivery that was accepted is not made again", "finish", 200, 1),
    case("a delivery that failed for good is not made again", "finish", 403, 1),
    case("a delivery that failed is made again when it is due", "postpone", 500, 2),
)
def test_an_outcome_that_a_full_disk_refuses_is_recorded_later(
    monkeypatch: pytest.MonkeyPatch, record: str, answer: int, posts: int
) -> None:
    rig = MessageRig()
    topic = rig.topic()
    for protocol, endpoint in (("http", HOOK), ("file", "log.jsonl")):
        rig.subscription(topic, protocol, endpoint, DeliveryPolicy=RETRIES)
    rig.subscriber.answers = [answer]
    refusals = refuse_first(monkeypatch, record, 6)
    rig.services.topics.publish(topic.arn, None, "text")
    deliver(rig, nothing_waits(rig))
    assert not refusals
    assert (len(rig.subscriber.posted), len(rig.subscriber.lines)) == (posts, 1)


def test_a_lane_pauses_once_all_of_its_attempts_have_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = MessageRig()
    topic = rig.topic()
    rig.subscription(topic, "http", HOOK, RawMessageDelivery="true")
    refusals = refuse_first(monkeypatch, "finish", 1)
    under_way: list[bytes] = []
    at_pauses: list[list[bytes]] = []

    async def post(address: str, headers: object, body: bytes) -> int:
        under_way.append(body)
        if body == b"slow":
            await until(lambda: not refusals)
            for _ in range(100):  # turns of the loop, in which a lane could pause
                await asyncio.sleep(0)
        under_way.remove(body)
        return 200

    async def pause(delay_s: float) -> None:
        at_pauses.append(list(under_way))

    rig.loop._deps = replace(rig.loop._deps, post=post)
    monkeypatch.setattr(rig.clock, "sleep", pause)
    for text in ("slow", "quick"):
        rig.services.topics.publish(topic.arn, None, text)
    deliver(rig, nothing_waits(rig))
    assert at_pauses == [[]]


def refuse_first(monkeypatch: pytest.MonkeyPatch, record: str, number: int) -> list[Exception]:
    """Have a full disk refuse the first calls of a method of deliveries. Each refusal is used."""
    refusals: list[Exception] = [StoreUnavailable("the disk is full")] * number
    written = getattr(Deliveries, record)

    def refused_first(*arguments: object) -> None:
        if refusals:
            raise refusals.pop()
        written(*arguments)

    monkeypatch.setattr(Deliveries, record, refused_first)
    return refusals


def test_a_dead_subscriber_delays_no_other() -> None:
    rig = MessageRig()
    topic = rig.topic()
    rig.subscription(topic, "http", "http://dead.example/d")
    rig.subscription(topic, "http", HOOK)
    blocked = asyncio.Event
    post = rig.subscriber.post

    async def hangs(address: str, headers: object, body: bytes) -> int:
        if "dead" in address:
            await blocked().wait()
        return await post(address, {}, body)

    rig.loop._deps = replace(rig.loop._deps, post=hangs)
    for number in range(20):
        rig.services.topics.publish(topic.arn, None, f"{number}")
    # A delivery is forgotten after its post: until then it waits, and is made again after a kill.
    deliver(rig, lambda: len(rig.deliveries.subscriptions()) == 1)
    assert len(rig.subscriber.posted) == 20


def test_a_file_gets_its_lines_and_a_deleted_subscription_nothing() -> None:
    rig = MessageRig()
    topic = rig.topic()
    rig.subscription(topic, "file", "log.jsonl", RawMessageDelivery="true")
    gone = rig.subscription(topic, "http", HOOK)
    rig.services.topics.publish(topic.arn, None, "line")
    name = gone.arn.split(":", 5)[5]
    stored = rig.state.subscriptions.get(HERE, name)
    assert stored is not None
    rig.state.subscriptions.delete(HERE, name, expect=stored.version)
    deliver(rig, nothing_waits(rig))
    assert rig.subscriber.lines == [("log.jsonl", "line")]
    assert not rig.subscriber.posted


def test_a_backlog_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries_module, "MAX_WAITING", 3)
    rig = MessageRig()
    topic = rig.topic()
    arn = rig.subscription(topic, "http", HOOK).arn
    for number in range(5):
        rig.services.topics.publish(topic.arn, None, f"{number}")
    assert len(rig.deliveries.due(arn, rig.clock.now(), 10)) == 3


def test_a_full_file_refuses_messages_and_keeps_those_it_has(tmp_path: Path) -> None:
    rig = MessageRig(where=tmp_path / "m.db")
    topic = rig.topic()
    rig.subscription(topic, "http", HOOK)
    rig.services.topics.publish(topic.arn, None, "kept")
    full = MessageTables(rig.database, max_bytes=1)
    with pytest.raises(RetryableError, match="limit"), full.changing(adds=True):
        pass
    with full.changing():
        pass


PUBLISHES_AND_DIES = """
import os, signal, sys
from tests.message_rig import MessageRig
from hostelry.store.records import open_state
from hostelry.store.sql import SqlStore
from hostelry.store.sqlite import SqliteFile
store = SqlStore(SqliteFile(sys.argv[1] + "/state.db"))
rig = MessageRig(open_state(store), where=sys.argv[1] + "/m.db")
topic = rig.topic()
rig.subscription(topic, "http", "http://hook.example/a")
rig.services.topics.publish(topic.arn, "s", "survives")
os.write(1, b"accepted")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_message_survives_a_kill_between_its_acceptance_and_its_delivery(
    tmp_path: Path,
) -> None:
    from hostelry.store.records import open_state
    from hostelry.store.sql import SqlStore
    from hostelry.store.sqlite import SqliteFile

    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PUBLISHES_AND_DIES, str(tmp_path)],
        capture_output=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'src'}"},
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"accepted"), done.stderr
    store = SqlStore(SqliteFile(tmp_path / "state.db"))
    rig = MessageRig(open_state(store), where=tmp_path / "m.db")
    deliver(rig, nothing_waits(rig))
    ((_, _, body),) = rig.subscriber.posted
    assert json.loads(body)["Message"] == "survives"
    store.close()
