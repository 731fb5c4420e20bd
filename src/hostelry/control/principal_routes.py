"""The principals for gateways and the S3 port.

``GET /internal/principals?have=VERSION`` answers the table once it differs from the caller's, and
304 after 20 s. The board follows the store in a thread, so that a revoked key is refused
everywhere within a second.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.api.iam.aws_policies import aws_policies
from hostelry.base.clock import Clock
from hostelry.base.concurrency import run_again
from hostelry.base.errors import Conflict, ServiceError
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse, refuse_invalid
from hostelry.domain.principal import BUCKET_SCOPE, BucketClaim, BucketOwner
from hostelry.permissions.authorization import authorize
from hostelry.permissions.evaluation import AccessRequest
from hostelry.permissions.wildcard import TooMuchMatching
from hostelry.principals.caller import Principals
from hostelry.principals.records import KINDS, build_table
from hostelry.principals.source import PATH
from hostelry.principals.table import PrincipalTable
from hostelry.reconcile.route_board import SnapshotBoard
from hostelry.store.protocol import RevisionTooOld
from hostelry.store.records import State

BUCKETS_PATH = "/internal/buckets"
POLL_WAIT_S = 20.0
WATCH_S = 1.0  # so long a thread waits for a change, before it looks if it should end
RETRY_S = 0.5


@contextlib.asynccontextmanager
async def follow_principals(board: "PrincipalBoard") -> AsyncIterator[None]:
    """Follow the store for the block."""
    task = asyncio.create_task(board.follow_forever())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


class PrincipalBoard:
    """Publishes the table of principals whenever one of its records has changed."""

    def __init__(self, state: State, owner: str, clock: Clock) -> None:
        self._state = state
        self._owner = owner
        self._clock = clock
        self._followed = -1
        self.board: SnapshotBoard[PrincipalTable] = SnapshotBoard()

    async def follow_forever(self) -> None:
        """Follow the store until cancelled."""
        await run_again("following principals", self._follow, RETRY_S, self._clock)

    async def _follow(self) -> None:
        while True:
            table = await asyncio.to_thread(self.take_changes)
            if table is not None:
                self.board.publish(table)

    def take_changes(self) -> PrincipalTable | None:
        """The new table if a record has changed, else None after `WATCH_S`."""
        store, since = self._state.store, self._followed
        if since < 0:
            self._followed = store.revision()
            return self._build()
        if not store.wait(since, WATCH_S):
            return None
        try:
            changes = store.changes(since)
        except RevisionTooOld:
            self._followed = store.revision()
            return self._build()
        self._followed = max([since, *(it.revision for it in changes)])
        return self._build() if any(it.key.kind in KINDS for it in changes) else None

    def _build(self) -> PrincipalTable:
        return build_table(self._state, aws_policies().values())

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route(PATH, self.get_newer, methods=["GET"]),
            Route(BUCKETS_PATH, self.claim_bucket, methods=["POST"]),
            Route("/internal/permissions", self.explain, methods=["GET"]),
        )

    async def get_newer(self, request: Request) -> Response:
        """Return the table once it differs from the caller's, or 304 after 20 seconds."""
        have = request.query_params.get("have")
        table = await self.board.newer_than(have, POLL_WAIT_S)
        if table is None:
            return Response(status_code=304)
        body = await asyncio.to_thread(msgspec.json.encode, table)
        return Response(body, media_type="application/json")

    async def claim_bucket(self, request: Request) -> Response:
        """Answer 204 once the owner of a bucket is durable, 409 if it is another account's."""
        with refuse_invalid("claim", msgspec.MsgspecError):
            claim = decode(await request.body(), BucketClaim)
        is_done = await asyncio.to_thread(self._claim, claim)
        return Response(status_code=204 if is_done else 409)

    def _claim(self, claim: BucketClaim) -> bool:
        records, stored = self._state.buckets, self._state.buckets.get(BUCKET_SCOPE, claim.bucket)
        if stored is not None and stored.value.account != claim.account:
            return False
        if claim.is_claimed and stored is None:
            bucket = BucketOwner(
                name=claim.bucket, account=claim.account, created_at=self._clock.now()
            )
            try:
                records.put(BUCKET_SCOPE, claim.bucket, bucket, expect=None)
            except Conflict:
                return False
        elif stored is not None and not claim.is_claimed:
            records.delete(BUCKET_SCOPE, claim.bucket, expect=stored.version)
        return True

    async def explain(self, request: Request) -> Response:
        """Return the decision on an `action` of a `principal` on a `resource`, with its cause.

        Each `context` is a condition key and a value, ``KEY=VALUE``. 404 for an unknown principal.
        """
        query = request.query_params
        table = await asyncio.to_thread(self._build)
        account = query.get("account") or self._owner
        try:
            caller = Principals(table, self._owner).find_principal(account, query["principal"])
        except ServiceError as error:
            return JsonResponse({"error": error.message}, error.http_status)
        context = {name: tuple(values) for name, values in caller.keys.items()}
        for pair in query.getlist("context"):
            key, _, value = pair.partition("=")
            context[key.lower()] = (*context.get(key.lower(), ()), value)
        asked = AccessRequest(action=query["action"], resource=query["resource"], context=context)
        try:
            decision = authorize(caller.grants, caller.who, account, asked)
        except TooMuchMatching:
            text = "The policies are too long to be decided on. Shorten their patterns."
            return JsonResponse({"error": text}, 400)
        return JsonResponse(
            {
                "principal": caller.arn,
                "action": asked.action,
                "resource": asked.resource,
                "decision": decision.outcome.value,
                "reason": decision.reason.value.format(action=asked.action),
                "statement": decision.statement,
                "policies": [it.id for it in caller.grants.identity],
                "has_boundary": caller.grants.boundary is not None,
                "missing_keys": decision.missing,
            }
        )
