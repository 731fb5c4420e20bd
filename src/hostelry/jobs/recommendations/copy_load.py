"""Users of a load test that send sample requests to the copies of an endpoint."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from hostelry.domain.routes import CopyRoute
from hostelry.http1.reply import BrokenError, ConnectError, DeadlineError, TooLargeError
from hostelry.jobs.copy_requests import CopyRequests, name_copy
from hostelry.jobs.recommendations.sample_requests import SampleRequest
from hostelry.loadtest.recording import AnswerRecord
from hostelry.loadtest.requests import LoadClient, LoadPlan

PAUSE_S = 0.1  # before another look for a copy


class CopyLoad:
    """The requests of one step, in turn. Each goes to the copy with the fewest requests.

    Users wait for a missing copy. Control decides for how long.

    Args:
        samples: the bodies.
        requests: sends them.
        copies: returns the copies that serve now.
    """

    streams_text = False

    def __init__(
        self,
        samples: Sequence[SampleRequest],
        requests: CopyRequests,
        copies: Callable[[], Sequence[CopyRoute]],
    ) -> None:
        self._samples = samples
        self._requests = requests
        self._copies = copies
        self._in_flight: Counter[str] = Counter()

    def open_client(self, plan: LoadPlan) -> LoadClient:
        """A new user. All users share the connections of the process."""
        del plan
        return self

    def close(self) -> None:
        """Keep the connections, which others use."""

    async def send(self, number: int, answer: AnswerRecord) -> None:
        """Send request `number` to a copy, and record the answer."""
        sample = self._samples[number % len(self._samples)]
        copy = await self._wait_for_copy()
        self._in_flight[copy.id] += 1
        try:
            status = await self._requests.stream(
                copy, sample.body, sample.content_type, answer.take
            )
        except DeadlineError as error:
            raise TimeoutError(str(error)) from error
        except ConnectError as error:
            raise ConnectionError(str(error)) from error
        except (BrokenError, TooLargeError) as error:
            answer.fail(f"{name_copy(error.copy or copy)} gave no whole answer", str(error))
            return
        finally:
            self._in_flight[copy.id] -= 1
        answer.end(status, b"")

    async def _wait_for_copy(self) -> CopyRoute:
        while True:
            copy = self._choose()
            if copy is not None:
                return copy
            await asyncio.sleep(PAUSE_S)

    def _choose(self) -> CopyRoute | None:
        count = self._in_flight
        return min(self._copies(), key=lambda it: (count[it.id], it.id), default=None)
