"""The jobs process by itself: its answers, and its state after kill -9."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.contract.jobs.test_request_queue import asked
from tests.integration.platform import until

from hostelry.base.ports import free_port
from hostelry.home.home import (
    Home,
    UpConfig,
    load_credentials,
    new_credentials,
    save_config,
    save_credentials,
)

pytestmark = pytest.mark.integration


class JobsProcess:
    """A jobs process with a separate home. `client` has the internal key."""

    def __init__(self, home: Home) -> None:
        self.home = home
        save_credentials(home, new_credentials("123456789012", "us-west-2"))
        config = UpConfig(control_port=1, jobs_port=free_port())
        save_config(home, config)
        key = load_credentials(home).internal_key
        self.client = httpx.Client(base_url=config.jobs_url, headers={"X-Hostelry-Key": key})

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        command = [sys.executable, "-m", "hostelry.services.jobs", "--home", str(self.home.root)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(self._answers, "an answer")
            yield process
            process.send_signal(signal.SIGKILL)

    def submit(self, **changes: Any) -> httpx.Response:
        body = msgspec.msgpack.encode(asked(**changes))
        return self.client.post("/internal/async-requests", content=body)

    def _answers(self) -> bool:
        try:
            return self.client.get("/internal/health").status_code == 200
        except httpx.HTTPError:
            return False


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobsProcess]:
    home = Home(tmp_path / "home")
    home.make()
    process = JobsProcess(home)
    yield process
    process.client.close()


def test_what_was_acknowledged_is_there_after_kill_9(jobs: JobsProcess) -> None:
    with jobs.running():
        assert jobs.submit(name="a", ttl_s=1e9).status_code == 204
        assert jobs.submit(name="b", ttl_s=1e9, endpoint="f").status_code == 204
    with jobs.running() as second:
        listed = jobs.client.get("/internal/jobs").json()
        assert [it["id"] for it in listed["jobs"]] == ["b", "a"]
        assert sorted((it["endpoint_name"], it["waiting"]) for it in listed["backlog"]) == [
            ("e", 1),
            ("f", 1),
        ]
        only = jobs.client.get("/internal/jobs", params={"endpoint": "f"}).json()["jobs"]
        assert [it["id"] for it in only] == ["b"]
        assert jobs.client.get("/internal/jobs/inference-a").json()["id"] == "a"
        assert jobs.client.post("/internal/jobs/a/drop").status_code == 204
        assert jobs.client.get("/internal/jobs/a").status_code == 404
        rival = subprocess.run(second.args, capture_output=True, text=True, check=False)
        assert rival.returncode == 1
        assert "another process for jobs holds" in rival.stderr


def test_bad_calls_are_refused_with_their_reason(jobs: JobsProcess) -> None:
    with jobs.running():
        post, get = jobs.client.post, jobs.client.get
        assert get("/internal/jobs", headers={"X-Hostelry-Key": "guess"}).status_code == 403
        assert post("/internal/async-requests", content=b"\xc1").status_code == 400
        assert post("/internal/async-requests", content=b"x" * 2_000_000).status_code == 413
        assert "none of waiting" in get("/internal/jobs?state=lost").text
        assert get("/internal/jobs?limit=many").status_code == 400
        assert get("/internal/other").status_code == 404
        assert jobs.submit(name="a", ttl_s=1e9).status_code == 204
        assert post("/internal/jobs/a/retry").status_code == 409
        assert jobs.submit(name="a").status_code == 503, "its id is there already"
