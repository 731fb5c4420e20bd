"""Claims of requests in a queue."""

from tests.memory_queue import MemoryQueue

from hostelry.base.clock import ManualClock
from hostelry.domain.async_request import AsyncRequest
from hostelry.domain.scope import Scope
from hostelry.jobs.queue.protocol import Claim

SCOPE = Scope("111122223333", "us-west-2")


def claimed(queue: MemoryQueue, clock: ManualClock, count: int) -> list[Claim]:
    now = clock.now()
    for number in range(count):
        request = AsyncRequest(
            id=str(number),
            inference_id=str(number),
            scope=SCOPE,
            endpoint_name="e",
            body=b"",
            output_uri="s3://o/k",
            failure_uri="",
            accepted_at=now,
            expires_at=now + 60,
            timeout_s=1,
        )
        queue.submit([request])
    return queue.claim(SCOPE, "e", "me", count, now, 30)
