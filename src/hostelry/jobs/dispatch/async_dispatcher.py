"""Hands out queued requests to free slots of copies, and acts on how each attempt ended."""

import asyncio
import logging
from contextlib import closing

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.concurrency import for_each, run_guarded
from hostelry.base.logging import about_request
from hostelry.dataplane.capture.capture import RequestCapture
from hostelry.dataplane.routes import RouteSource
from hostelry.domain.routes import EndpointRoute
from hostelry.domain.scope import Scope
from hostelry.jobs.data_log import DataLog
from hostelry.jobs.dispatch.attempt import AttemptFailedError, CopyAttempts
from hostelry.jobs.dispatch.endings import RequestEnds
from hostelry.jobs.dispatch.metric_reports import TIME_IN_BACKLOG, AsyncMeasurements
from hostelry.jobs.dispatch.request_input import AttemptCapture
from hostelry.jobs.dispatch.slots import LEASE_S, CopySlots, RunningRequests
from hostelry.jobs.objects.object_output import StaleClaimError
from hostelry.jobs.queue.protocol import Claim, QueueCommits
from hostelry.jobs.rules.copy_slots import ChosenCopy, has_endpoint, was_accepted_before
from hostelry.jobs.rules.messages import build_gone_reason
from hostelry.jobs.rules.next_step import Later, Trouble, choose_next_step

LOG = logging.getLogger(__name__)
MAX_CLAIMS = 64  # limit of claims per endpoint at once
MAX_FILLS = 64
RETRY_S = 0.5  # pause after a failed pass
DEFECT = "An internal error ended the attempt; the log of the jobs process has its cause."

QueueOf = tuple[Scope, str]  # scope and name of an endpoint


class DispatchDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the dispatcher. `owner` names this process in its claims."""

    commits: QueueCommits
    routes: RouteSource
    slots: CopySlots
    running: RunningRequests
    attempts: CopyAttempts
    ends: RequestEnds
    measurements: AsyncMeasurements
    data_log: DataLog
    capture: RequestCapture
    clock: Clock
    owner: str


class AsyncDispatcher:
    """The loop over queues that may have requests. New routes and free slots wake it too."""

    def __init__(self, deps: DispatchDeps) -> None:
        self._deps = deps
        self._waiting: set[QueueOf] = set()
        self._woken = asyncio.Event()
        deps.routes.listen(self._woken.set)
        deps.slots.listen(self._woken.set)

    def wake(self, scope: Scope, endpoint_name: str) -> None:
        """Wake the loop, because requests may wait for this endpoint."""
        self._waiting.add((scope, endpoint_name))
        self._woken.set()

    async def run(self) -> None:
        """Hand out requests until cancelled."""
        failing = False
        while True:
            await self._woken.wait()
            self._woken.clear()
            failing = not await run_guarded("handing out requests", self._hand_out, quiet=failing)
            if failing:
                await self._deps.clock.sleep(RETRY_S)
                self._woken.set()

    async def _hand_out(self) -> None:
        """Fill the free slots of every endpoint with waiting requests."""
        table = self._deps.routes.table
        found = [table.endpoint(*place) for place in self._waiting]
        serving = [endpoint for endpoint in found if endpoint is not None]
        await for_each(serving, self._fill, MAX_FILLS)  # claims at once share a commit

    async def _fill(self, endpoint: EndpointRoute) -> None:
        deps, place = self._deps, (endpoint.scope, endpoint.name)
        free = min(deps.slots.free(endpoint), MAX_CLAIMS)
        if not free:
            return  # new routes or a free slot wake this loop
        self._waiting.discard(place)  # before the claim, so that new requests are noted again
        now = deps.clock.now()
        try:
            claims = await deps.commits.write(
                lambda queue: queue.claim(*place, deps.owner, free, now, LEASE_S)
            )
        except BaseException:
            self._waiting.add(place)
            raise
        if len(claims) == free:
            self.wake(*place)
        for claim in claims:
            is_own = has_endpoint(claim.request, endpoint)
            chosen = deps.slots.take(endpoint) if is_own else None
            deps.running.start(claim, self._process(claim, endpoint, chosen))

    async def _process(
        self, claim: Claim, endpoint: EndpointRoute, chosen: ChosenCopy | None
    ) -> None:
        """Process one request until it has ended, or is back in the queue."""
        about_request(claim.request.id)  # each request has a task

        async def attempt() -> None:
            await self._attempt(claim, endpoint, chosen)

        if not await run_guarded(f"request {claim.request.id}", attempt):
            failure = AttemptFailedError(Trouble.MODEL_FAILED, DEFECT)
            await run_guarded(
                f"the end of request {claim.request.id}",
                lambda: self._after(claim, chosen, failure),
            )

    async def _attempt(
        self, claim: Claim, endpoint: EndpointRoute, chosen: ChosenCopy | None
    ) -> None:
        deps, request = self._deps, claim.request
        if was_accepted_before(request, endpoint):
            await deps.ends.fail(claim, "", build_gone_reason(request))
            return
        if chosen is None:  # new routes took the slot that the request was claimed for
            failure = AttemptFailedError(Trouble.NO_COPY, "No copy took the request.")
            await self._after(claim, None, failure)
            return
        variant_name = chosen.variant_name
        if claim.attempt == 1:
            waited_s = deps.clock.now() - request.accepted_at
            place = (request.scope, request.endpoint_name, variant_name)
            deps.measurements.add_ms(place, TIME_IN_BACKLOG, waited_s)
        with closing(AttemptCapture(deps.capture, request)) as captured:
            try:
                response = await deps.attempts.run(
                    request, endpoint, chosen, captured, lambda: deps.running.is_held(claim)
                )
            except StaleClaimError:
                LOG.warning("request %s is another owner's by now; its output is left", request.id)
            except AttemptFailedError as failure:
                captured.close()
                await self._after(claim, chosen, failure)
            else:
                if await deps.ends.complete(claim, variant_name, response):
                    captured.finish()

    async def _after(
        self, claim: Claim, chosen: ChosenCopy | None, failure: AttemptFailedError
    ) -> None:
        """Try again later, or end the request."""
        deps, request, now = self._deps, claim.request, self._deps.clock.now()
        step = choose_next_step(failure.trouble, claim.attempt, now)
        if not isinstance(step, Later):
            self._say(claim, chosen, f"failed: {failure}")
            await deps.ends.fail(claim, "" if chosen is None else chosen.variant_name, str(failure))
            return
        if step.counts:
            LOG.info("request %s, attempt %d: %s", request.id, claim.attempt, failure)
            self._say(claim, chosen, f"is tried again: {failure}")
        at, counts, reason = step.at, step.counts, str(failure)
        await deps.commits.write_once_possible(
            lambda queue: queue.defer(claim, at, reason, now, counts)
        )
        loop = asyncio.get_running_loop()
        loop.call_later(max(0.0, step.at - now), self.wake, request.scope, request.endpoint_name)

    def _say(self, claim: Claim, chosen: ChosenCopy | None, text: str) -> None:
        """Add a line about a request to the data log of its endpoint."""
        request = claim.request
        self._deps.data_log.note(
            request.scope,
            request.endpoint_name,
            "" if chosen is None else chosen.variant_name,
            f"{request.inference_id} (request {request.id}), attempt {claim.attempt}, {text}",
            None if chosen is None else chosen.copy.id,
        )
