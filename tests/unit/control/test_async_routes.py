"""Control's routes for the jobs process: their answers, and repeats without effect."""

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.message_rig import HERE, MessageRig

from hostelry.control.jobs_routes import AsyncRoutes
from hostelry.domain.async_request import AsyncMetricsReport, ScopedMetric
from hostelry.domain.messaging import PublicationRequest
from hostelry.domain.metric import MetricStat, Sample
from hostelry.jobs.rules.async_metrics import build_backlog_samples
from hostelry.messaging import deliveries
from hostelry.messaging.deliveries import PUBLISHED_S

TOPIC = "arn:aws:sns:us-west-2:123456789012:ends"
MESSAGE = PublicationRequest(topic_arn=TOPIC, message="{}", message_id="r-1")


def answered(rig: MessageRig, method: str, target: str, *bodies: bytes) -> list[httpx.Response]:
    async def main() -> list[httpx.Response]:
        routes = AsyncRoutes(rig.state, rig.services.topics, rig.metrics)
        transport = httpx.ASGITransport(app=Starlette(routes=routes.routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return [await client.request(method, target, content=it) for it in bodies]

    return asyncio.run(main())


def statuses(rig: MessageRig, target: str, *bodies: bytes) -> list[int]:
    return [it.status_code for it in answered(rig, "POST", target, *bodies)]


def report(
    rig: MessageRig, sequence: int, value: int, host: str = "", started_at: float = 5.0
) -> bytes:
    found = build_backlog_samples("queued", value, 0, None, 1, rig.clock.now())
    samples = tuple(ScopedMetric(scope=HERE, sample=it) for it in found)
    return msgspec.json.encode(
        AsyncMetricsReport(started_at=started_at, sequence=sequence, samples=samples, host=host)
    )


def test_a_message_reaches_the_topics_subscribers() -> None:
    rig = MessageRig()
    rig.subscription(rig.topic("ends"), "file", "ends.jsonl")
    assert statuses(rig, "/internal/publish", msgspec.json.encode(MESSAGE)) == [204]
    assert len(rig.deliveries.subscriptions()) == 1


def test_a_message_that_is_sent_again_is_published_once_also_by_another_control(
    tmp_path: Path,
) -> None:
    rig = MessageRig(where=tmp_path / "messages.db")
    for topic in ("ends", "others"):
        rig.subscription(rig.topic(topic), "file", f"{topic}.jsonl")
    again = msgspec.json.encode(MESSAGE)
    new = msgspec.json.encode(replace(MESSAGE, message_id="r-2"))
    elsewhere = msgspec.json.encode(replace(MESSAGE, topic_arn=TOPIC.replace("ends", "others")))
    assert statuses(rig, "/internal/publish", again, again, new, elsewhere) == [204] * 4
    rig.database.close()
    rig = MessageRig(rig.state, rig.clock, tmp_path / "messages.db")
    assert statuses(rig, "/internal/publish", again, new) == [204, 204]
    assert ids_by_topic(rig) == {"ends": ["r-1", "r-2"], "others": ["r-1"]}
    rig.clock.advance(PUBLISHED_S)
    rig.deliveries.forget_publications(rig.clock.now())
    statuses(rig, "/internal/publish", again)
    assert ids_by_topic(rig)["ends"] == ["r-1", "r-2", "r-1"]


def ids_by_topic(rig: MessageRig) -> dict[str, list[str]]:
    found = {}
    for arn in rig.deliveries.subscriptions():
        due = rig.deliveries.due(arn, rig.clock.now(), 9)
        found[arn.rpartition(":")[0].rpartition(":")[2]] = [it.message_id for it in due]
    return found


def test_the_oldest_of_too_many_publications_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "MAX_PUBLISHED", 2)
    rig = MessageRig()
    rig.subscription(rig.topic("ends"), "file", "ends.jsonl")
    bodies = [msgspec.json.encode(replace(MESSAGE, message_id=f"r-{it}")) for it in range(3)]
    for body in bodies:
        statuses(rig, "/internal/publish", body)
        rig.clock.advance(1.0)
    rig.deliveries.forget_publications(rig.clock.now())
    statuses(rig, "/internal/publish", *bodies)
    assert ids_by_topic(rig) == {"ends": ["r-0", "r-1", "r-2", "r-0"]}


@cases(
    "body, status",
    case("no such topic", msgspec.json.encode(MESSAGE), 404),
    case("half a message", b'{"topic_arn": "x"}', 400),
    case("no text", b"\xff", 400),
    case("a huge message", msgspec.json.encode(replace(MESSAGE, message="x" * 300_000)), 400),
)
def test_messages_that_are_refused(body: bytes, status: int) -> None:
    assert statuses(MessageRig(), "/internal/publish", body) == [status]


@cases(
    "hosts",
    case("by one process", [("", 5.0)] * 2),
    case("by the process of each host", [("a", 9.0), ("b", 5.0)]),
)
def test_a_report_is_published_once(hosts: list[tuple[str, float]]) -> None:
    rig = MessageRig()
    first, second = (report(rig, it, 5 + 2 * it, *hosts[it - 1]) for it in (1, 2))
    sent = (first, first, second, first, second)
    assert statuses(rig, "/internal/async-metrics", *sent) == [204] * 5
    sample = next(iter(build_backlog_samples("queued", 0, 0, None, 1, 0.0)))
    stat = MetricStat(metric=sample.metric, period_s=60, statistic="Sum")
    now = rig.clock.now()
    assert [it.value for it in rig.metrics.datapoints(HERE, stat, now - 120, now + 1)] == [16.0]


def test_a_sample_of_another_namespace_is_refused() -> None:
    rig = MessageRig()
    (sample, *_) = build_backlog_samples("queued", 1, 0, None, 1, rig.clock.now())
    foreign: Sample = replace(sample, metric=replace(sample.metric, namespace="AWS/EC2"))
    body = msgspec.json.encode(
        AsyncMetricsReport(
            started_at=5.0, sequence=1, samples=(ScopedMetric(scope=HERE, sample=foreign),)
        )
    )
    assert statuses(rig, "/internal/async-metrics", body) == [400]


def test_an_endpoint_that_control_does_not_have() -> None:
    target = "/internal/async-endpoint?account=123456789012&region=us-west-2&endpoint=gone"
    (answer,) = answered(MessageRig(), "GET", target, b"")
    assert answer.json() == {"exists": False}
