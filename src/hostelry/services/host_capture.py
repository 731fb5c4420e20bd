"""Captured requests of a host without a process for jobs: uploaded from there.

Only to an object store that all hosts reach: the embedded one is on the host of control alone.
"""

from collections.abc import Coroutine, Mapping
from typing import Any

from hostelry.aws.s3_signing import OwnKey
from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_periodically
from hostelry.dataplane.capture.report_sender import REPORT_S, CaptureReportSender
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.capture_uploads import LOOK_S, CaptureUploads, SpoolFolder
from hostelry.jobs.objects.object_store import ObjectStore
from hostelry.services.worker_parts import get_reporter_name

REPORTER = "link"


class HostCapture:
    """The uploads of a host's spool files, and the reports of them to control."""

    def __init__(
        self,
        home: Home,
        config: UpConfig,
        credentials: Credentials,
        pool: UpstreamPool,
        clock: Clock,
    ) -> None:
        key = OwnKey(
            access_key_id=credentials.access_key_id,
            secret_access_key=credentials.secret_access_key,
            region=credentials.region,
        )
        store = ObjectStore(config.s3_url, key, pool, clock.now)
        self.uploads = CaptureUploads(SpoolFolder(home.capture), store, clock)
        self.sender = CaptureReportSender(
            get_reporter_name(config, REPORTER),
            self.uploads.counts,
            pool,
            config.control_url,
            credentials.internal_key,
            clock,
        )

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What runs until it is cancelled, by name."""
        uploading, reporting = "uploading captured requests", "reporting data capture"
        return {
            uploading: run_periodically(uploading, self.uploads.look, LOOK_S),
            reporting: run_periodically(reporting, self.sender.send, REPORT_S),
        }
