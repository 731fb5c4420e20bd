"""A runner of transform jobs for tests: each object whole to one copy, its answer to the output."""

import contextlib
import threading
from types import TracebackType
from typing import Any

import httpx
import msgspec
from tests.integration.platform import Platform

from hostelry.base.copy_key import HEADER
from hostelry.domain.transform_job import (
    TransformEnd,
    TransformJob,
    TransformJobStatus,
    TransformSnapshot,
)

PAUSE_S = 0.2


class StandInRunner:
    """Does the jobs of a platform in a thread, from entering to leaving it."""

    def __init__(self, platform: Platform) -> None:
        self._url = f"{platform.config.control_url}/internal"
        self._headers = {"X-Hostelry-Key": platform.credentials.internal_key}
        self._s3 = platform.boto3("s3", s3={"addressing_style": "path"})
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "StandInRunner":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(PAUSE_S):
            with contextlib.suppress(httpx.TransportError):  # control may be killed
                for job in self._jobs():
                    self._end(job, self._done(job))

    def _jobs(self) -> list[TransformJob]:
        answer = httpx.get(f"{self._url}/transform-jobs", headers=self._headers)
        snapshot = msgspec.json.decode(answer.content, type=TransformSnapshot)
        return [it for it in snapshot.jobs if it.started_at is not None]

    def _done(self, job: TransformJob) -> str | None:
        """Do the job; why it failed, None where it did not."""
        copy = self._copy_of(job)
        if copy is None:
            return "no copy serves"
        bucket, _, prefix = job.input.uri.removeprefix("s3://").partition("/")
        listed = self._s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["Contents"]
        for key in (it["Key"] for it in listed):
            body = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            answer = httpx.post(
                f"{copy['address']}/invocations",
                content=body,
                headers={
                    "Content-Type": job.input.content_type or "",
                    "Accept": job.output.accept or "*/*",
                    HEADER: copy["key"] or "",
                },
                timeout=60,
            )
            if answer.status_code != 200:
                return f"{key}: {answer.status_code} {answer.text}"
            name = key.removeprefix(prefix).lstrip("/")
            out_bucket, _, out = job.output.path.removeprefix("s3://").partition("/")
            self._s3.put_object(
                Bucket=out_bucket, Key=f"{out}/{name}.out", Body=answer.content.rstrip() + b"\n"
            )
        return None

    def _end(self, job: TransformJob, reason: str | None) -> None:
        status = TransformJobStatus.COMPLETED if reason is None else TransformJobStatus.FAILED
        end = TransformEnd(scope=job.scope, name=job.name, status=status, reason=reason)
        body = msgspec.json.encode(end)
        httpx.post(f"{self._url}/transform-jobs/finish", headers=self._headers, content=body)

    def _copy_of(self, job: TransformJob) -> dict[str, Any] | None:
        routes = httpx.get(f"{self._url}/routes", headers=self._headers).json()
        by_name = {it["name"]: it for it in routes["endpoints"]}
        if job.endpoint_name not in by_name:
            return None
        copies: list[dict[str, Any]] = by_name[job.endpoint_name]["variants"][0]["copies"]
        return copies[0] if copies else None
