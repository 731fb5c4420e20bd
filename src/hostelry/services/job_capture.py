"""Data capture of the jobs process: it writes its requests to files, and uploads all files."""

import random
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from hostelry.base.concurrency import run_guarded, run_periodically
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.capture.report_sender import REPORT_S, CaptureReportSender
from hostelry.domain.data_capture import CaptureCounts
from hostelry.domain.load import LoadKey
from hostelry.home.home import Home, UpConfig
from hostelry.jobs.capture_uploads import LOOK_S, CaptureUploads, SpoolFolder
from hostelry.jobs.objects.object_store import ObjectStore
from hostelry.services.job_batches import ProcessParts
from hostelry.services.worker_parts import get_reporter_name, open_spool

REPORTER = "jobs"
REPORTING = "reporting data capture"
UPLOADING = "uploading captured requests"


class JobCapture(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of capture. `requests` takes the requests that this process sends to copies."""

    requests: RequestCapture
    uploads: CaptureUploads
    sender: CaptureReportSender

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What runs until it is cancelled, by name."""
        return {
            "writing captured requests": self.requests.run(),
            UPLOADING: run_periodically(UPLOADING, self.uploads.look, LOOK_S),
            REPORTING: run_periodically(REPORTING, self.sender.send, REPORT_S),
        }

    async def finish(self) -> None:
        """Write the rest, for the next process to upload. Nothing is captured after that."""
        await run_guarded("the last captured requests", self.requests.finish)
        await run_guarded("the last report of data capture", self.sender.send)


def build_capture(
    home: Home, config: UpConfig, internal_key: str, store: ObjectStore, parts: ProcessParts
) -> JobCapture:
    """Build the capture of this process's requests, and the uploads of every process's files."""
    clock = parts.clock
    requests = RequestCapture(open_spool(home, config, REPORTER), random.Random().random, clock)
    uploads = CaptureUploads(SpoolFolder(home.capture), store, clock)

    def counts() -> Mapping[LoadKey, CaptureCounts]:
        found = uploads.counts()
        for key, counted in requests.counts().items():
            found.setdefault(key, CaptureCounts()).add(counted)
        return found

    sender = CaptureReportSender(
        get_reporter_name(config, REPORTER),
        counts,
        parts.control,
        config.control_url,
        internal_key,
        clock,
    )
    return JobCapture(requests=requests, uploads=uploads, sender=sender)
