"""POST /internal/capture: each report counted once, its metrics, and the sums for the status."""

import asyncio

import httpx
import msgspec
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.dataplane.capture.capture_sample import AT, KEY

from hostelry.base.clock import ManualClock
from hostelry.control.jobs_routes import CaptureBoard
from hostelry.domain.data_capture import CaptureCounts, CaptureReport, VariantCapture
from hostelry.domain.metric import Metric, MetricStat
from hostelry.metrics.series.store import MemoryMetrics

DIMENSIONS = {"EndpointName": "e", "VariantName": "v"}


def body(reporter: str, sequence: int, started_at: float = AT, **counts: object) -> bytes:
    variant = VariantCapture(key=KEY, counts=CaptureCounts(**counts))  # type: ignore[arg-type]
    report = CaptureReport(
        reporter=reporter, started_at=started_at, sequence=sequence, at=AT, variants=(variant,)
    )
    return msgspec.json.encode(report)


class Posted:
    """The board after these bodies were posted, and the answers."""

    def __init__(self, *bodies: bytes) -> None:
        self.metrics = MemoryMetrics(ManualClock(AT))
        self.board = CaptureBoard(self.metrics)
        self.answers = asyncio.run(self._post(bodies))

    async def _post(self, bodies: tuple[bytes, ...]) -> list[int]:
        transport = httpx.ASGITransport(app=Starlette(routes=list(self.board.routes())))
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            found = [await client.post("/internal/capture", content=text) for text in bodies]
        return [it.status_code for it in found]

    def sums(self) -> tuple[int, int]:
        (found,) = self.board.list_variants(KEY.scope, "e")
        return found["captured"], found["dropped"]

    def total(self, name: str) -> float | None:
        metric = Metric.of("Hostelry", name, DIMENSIONS)
        stat = MetricStat(metric=metric, period_s=60, statistic="Sum")
        found = self.metrics.datapoints(KEY.scope, stat, AT - 60.0, AT + 60.0)
        return found[0].value if found else None


@cases(
    "bodies, sums",
    case(
        "the same one twice counts once",
        [body("gateway-1", 1, captured=3), body("gateway-1", 1, captured=3)],
        (3, 0),
    ),
    case(
        "the next one adds",
        [body("gateway-1", 1, captured=3), body("gateway-1", 2, captured=1, dropped=2)],
        (4, 2),
    ),
    case(
        "a restarted worker begins again",
        [body("gateway-1", 7, captured=3), body("gateway-1", 1, AT + 9.0, captured=1)],
        (4, 0),
    ),
    case(
        "workers add up",
        [body("gateway-1", 1, captured=3), body("gateway-2", 1, captured=1)],
        (4, 0),
    ),
)
def test_reports_are_counted_once(bodies: list[bytes], sums: tuple[int, int]) -> None:
    found = Posted(*bodies)
    assert found.answers == [204] * len(bodies)
    assert found.sums() == sums
    assert found.total("CapturedRequests") == sums[0]


def test_metrics_have_zeros_for_alarms() -> None:
    found = Posted(body("gateway-1", 1, captured=3, captured_bytes=70), body("jobs", 1, objects=1))
    names = ("CapturedBytes", "CaptureDroppedRequests", "CaptureObjects", "CaptureUploadFailures")
    assert [found.total(it) for it in names] == [70.0, 0.0, 1.0, 0.0]


def test_the_status_has_the_last_cause_until_uploads_succeed() -> None:
    failed = body("jobs", 1, upload_failures=1, upload_cause="no bucket")
    done = body("jobs", 2, objects=1, upload_cause="", uploaded_at=AT + 5.0)
    dropped = body("gateway-1", 1, dropped=1, drop_cause="the disk is full")
    found = Posted(dropped, failed)
    (shown,) = found.board.list_variants(KEY.scope, "e")
    assert (shown["upload_cause"], shown["drop_cause"]) == ("no bucket", "the disk is full")
    (shown,) = Posted(dropped, failed, done).board.list_variants(KEY.scope, "e")
    assert (shown["upload_cause"], shown["uploaded_at"]) == ("", AT + 5.0)
    assert found.board.list_variants(KEY.scope, "other") == []


@cases("text", case("nothing", b""), case("half a report", b"{}"))
def test_what_is_no_report_is_refused(text: bytes) -> None:
    assert Posted(text).answers == [400]
