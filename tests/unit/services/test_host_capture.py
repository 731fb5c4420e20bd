"""Captured requests of a host without a process for jobs become objects, and are reported."""

from pathlib import Path

import msgspec
import pytest
from tests.unit.dataplane.capture.capture_sample import AT, LIMITS, TARGET, record_head, spool

from hostelry.base.clock import ManualClock
from hostelry.dataplane.capture.spool import SpoolBatch
from hostelry.dataplane.capture.spool_file import record_prefix
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.domain.data_capture import CaptureReport
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry.http1.reply import Reply
from hostelry.http1.upstream import Timeouts, UpstreamPool
from hostelry.jobs.objects.object_store import ObjectStore, OutputSettings
from hostelry.services.host_capture import HostCapture


class Platform(UpstreamPool):
    """Takes every report."""

    def __init__(self) -> None:
        super().__init__()
        self.reports: list[CaptureReport] = []

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        self.reports.append(msgspec.json.decode(parts[1], type=CaptureReport))
        reply = Reply(FakeReplyConnection())
        reply.set_head(204, {})
        reply.end(reusable=True)
        return reply


async def test_a_hosts_captured_requests_are_uploaded_and_reported_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects: dict[str, bytes] = {}

    async def put(_: ObjectStore, uri: str, body: bytes, settings: OutputSettings) -> None:
        objects[uri] = body

    monkeypatch.setattr(ObjectStore, "put", put)
    home, platform = Home(tmp_path / "home"), Platform()
    home.make()
    config = UpConfig(control_port=9, s3_endpoint="http://nas:9000", host_id="h-1")
    parts = [record_prefix(record_head(inference_id="a"), 0, 0)]
    writer = spool(home.capture / "gateway-1", LIMITS)
    batch = SpoolBatch(target=TARGET, parts=parts, num_records=1, num_bytes=len(parts[0]))
    writer.append([batch], AT)
    writer.close()
    keys = new_credentials("1" * 12, "us-east-1")
    capture = HostCapture(home, config, keys, platform, ManualClock(AT))
    await capture.uploads.look()
    await capture.sender.send()
    assert [it.partition("seen/")[0] for it in objects] == ["s3://"]
    assert [it.reporter for it in platform.reports] == ["h-1/link"]
    assert platform.reports[0].variants[0].counts.objects == 1
