"""Control's route for data logs: their streams next to copies' streams, each report stored once."""

import asyncio
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from hostelry.base.clock import ManualClock
from hostelry.control.jobs_routes import DataLogRoutes
from hostelry.domain.copy import Copy, CopyPhase, CopySpec, CopyStatus
from hostelry.domain.log_source import DataLine, DataLogReport
from hostelry.domain.model import Container
from hostelry.domain.scope import Scope
from hostelry.logs.store import BEGIN, END, LogStore
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state

SCOPE = Scope("123456789012", "us-west-2")
JOBS = "/aws/sagemaker/TransformJobs"


class Rig:
    """The route over a store of log events, with a copy of a job and a copy of an endpoint."""

    def __init__(self, folder: Path) -> None:
        self.state = open_state(MemoryStore())
        self.clock = ManualClock()
        self.logs = LogStore(folder / "logs.db")
        self.routes = DataLogRoutes(self.state, self.logs, self.clock)
        for copy_id, endpoint in (("c-1", "transform-job/nightly"), ("c-2", "queued")):
            copy = Copy(
                scope=SCOPE,
                endpoint_name=endpoint,
                variant_name="main",
                component_name=None,
                generation=1,
                instance_id="i-1",
                spec=CopySpec(
                    id=copy_id,
                    owner="variant/main",
                    container=Container(image="i"),
                    requirements=None,
                    download_timeout_s=1.0,
                    startup_timeout_s=1.0,
                ),
                status=CopyStatus(id=copy_id, phase=CopyPhase.READY),
                created_at=5.0,
                instance_made_at=5.0,
            )
            self.state.copies.put(SCOPE, copy_id, copy, expect=None)

    def line(self, text: str, endpoint: str, copy_id: str | None = None) -> DataLine:
        return DataLine(
            scope=SCOPE,
            endpoint_name=endpoint,
            variant_name="main",
            copy_id=copy_id,
            at=self.clock.now(),
            text=text,
        )

    def post(self, *bodies: bytes) -> list[int]:
        async def main() -> list[int]:
            transport = httpx.ASGITransport(app=Starlette(routes=self.routes.routes()))
            async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
                answers = [await http.post("/internal/data-log", content=it) for it in bodies]
            return [it.status_code for it in answers]

        return asyncio.run(main())

    def take(self, sequence: int, *lines: DataLine) -> None:
        report = DataLogReport(started_at=5.0, sequence=sequence, lines=lines)
        assert self.post(msgspec.json.encode(report)) == [204]

    def texts(self, group_name: str) -> dict[str, list[str]]:
        group = self.logs.group(SCOPE, group_name)
        assert group is not None
        return {
            stream.name: [it.message for it in self.logs.read_forwards(stream, BEGIN, END, 99)]
            for stream in self.logs.streams(group, limit=9)
        }


def test_lines_go_beside_the_output_of_their_copy_and_a_report_counts_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    job = "transform-job/nightly"
    first = rig.line("a.csv failed", job, "c-1")
    rig.take(1, first, rig.line("no object", job), rig.line("r-1 waits", "queued"))
    rig.take(1, first)
    found = rig.state.copies.get(SCOPE, "c-1")
    assert found is not None
    rig.state.copies.delete(SCOPE, "c-1", expect=found.version)
    rig.take(2, rig.line("b.csv failed", job, "c-1"), rig.line("r-1 failed", "queued", "c-2"))
    assert rig.texts(JOBS) == {
        "nightly/data-log": ["no object"],
        "nightly/i-1-5/data-log": ["a.csv failed", "b.csv failed"],
    }
    assert rig.texts("/aws/sagemaker/Endpoints/queued") == {
        "main/data-log": ["r-1 waits"],
        "main/i-1/data-log": ["r-1 failed"],
    }
    assert {stream.name for _, stream in rig.logs.find_named("nightly")} == set(rig.texts(JOBS))


@pytest.mark.parametrize("body", [b"", b"{}", b'{"started_at": 1}', b"\xff"])
def test_what_is_no_report_is_refused(tmp_path: Path, body: bytes) -> None:
    assert Rig(tmp_path).post(body) == [400]


def test_a_report_that_cannot_be_stored_is_asked_for_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    lines = (rig.line("x", "queued"),)
    body = msgspec.json.encode(DataLogReport(started_at=5.0, sequence=1, lines=lines))
    rig.logs.close()
    assert rig.post(body) == [503]
