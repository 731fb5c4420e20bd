"""Calls of a transform job to one copy."""

import asyncio
from collections.abc import Callable

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError
from hostelry.dataplane.metering.meter import Meter
from hostelry.domain.load import LoadKey
from hostelry.domain.routes import CopyRoute
from hostelry.domain.transform_job import VARIANT_NAME, TransformJob
from hostelry.http1.reply import BrokenError, ConnectError, DeadlineError, TooLargeError
from hostelry.http1.upstream import UpstreamPool
from hostelry.jobs.copy_requests import CopyAnswer, CopyRequests, name_copy
from hostelry.jobs.records.splitting import RecordError

MAX_SHOWN_BYTES = 500


class CopyGoneError(HostelryError):
    """The copy refuses connections. Other copies get its objects."""


class CopyBrokeError(RecordError):
    """The copy broke off every answer. It died, perhaps because of this payload."""


class CopyCalls:
    """Sends the payloads of one job.

    Args:
        job: has the limits.
        pool: connections to copies.
        meter: measures requests.
        clock: paces retries.
    """

    def __init__(self, job: TransformJob, pool: UpstreamPool, meter: Meter, clock: Clock) -> None:
        self._job = job
        self._clock = clock
        key = LoadKey(scope=job.scope, endpoint_name=job.endpoint_name, variant_name=VARIANT_NAME)
        timeout_s = job.invocation_timeout_s
        self._requests = CopyRequests(key, job.output.accept, timeout_s, pool, meter)

    async def answer(self, copy: CopyRoute, body: bytes, name: Callable[[], str]) -> bytes:
        """Send a payload to the copy and return the answer. `name` names the payload in errors.

        Calls are repeated after 5xx and 429, broken connections and time-outs, as often as the job
        allows. Raises RecordError after the last try (CopyBrokeError if that was a broken
        connection), and CopyGoneError.
        """
        last, broke = CopyAnswer(0, b"", copy), False
        for attempt in range(self._job.max_retries + 1):
            if attempt:
                await self._clock.sleep(float(2 ** (attempt - 1)))
            try:
                last = await self._once(copy, body)
            except BrokenError as error:
                last, broke = CopyAnswer(0, str(error).encode(), error.copy or copy), True
                continue
            except ConnectError as error:
                if broke:  # it died of this payload, or for another reason
                    break
                raise CopyGoneError(str(error)) from error
            broke = False
            if 200 <= last.status < 300:
                return last.body
            if 0 < last.status < 500 and last.status != 429:
                break
        shown = last.body[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
        title = name_copy(last.answered_by)
        cause = f"{title} answered {last.status}" if last.status else f"{title} gave no answer"
        reason = f"{cause} to {name()}, attempt {attempt + 1}: {shown}"
        raise CopyBrokeError(reason) if broke else RecordError(reason)

    async def _once(self, copy: CopyRoute, body: bytes) -> CopyAnswer:
        """Send once. Without an answer in time the status is 0, and the body says so.

        Raises ConnectError, BrokenError, and RecordError if the answer is too large.
        """
        try:
            return await self._requests.send(copy, body, self._job.input.content_type)
        except DeadlineError as error:
            late = f"none within {self._job.invocation_timeout_s:g} s".encode()
            return CopyAnswer(0, late, error.copy or copy)
        except TooLargeError as error:
            title = name_copy(error.copy or copy)
            raise RecordError(f"{title} gave too large an answer: {error}") from error


async def cancel_all(tasks: "list[asyncio.Task[bytes]]") -> None:
    """Cancel tasks, and wait for their end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
