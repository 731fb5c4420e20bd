"""POST /internal/acts/...: restart copies and drain instances. Acts are audited, then recorded.

| request | answer |
| --- | --- |
| allowed by the present state | 200 with the act's steps. With `dry_run` nothing is changed |
| ... and asked for before | 200 with `already`. Nothing is recorded again |
| not allowed | 409 with the reason |
| with an unknown name | 404 |
| with an invalid body | 400 |
| while the disk or the store fails | 507 or 503. Nothing was recorded |
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.audit.acts import AuditEntry
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import Clock
from hostelry.base.errors import RetryableError, ServiceError
from hostelry.base.ids import new_copy_id, new_instance_id
from hostelry.base.json import decode
from hostelry.base.json_response import JsonResponse
from hostelry.control.audit_routes import MAX_CHARS
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Shape
from hostelry.reconcile.acts.act import PlannedAct, report_unknown
from hostelry.reconcile.acts.drain import plan_drain, plan_undrain
from hostelry.reconcile.acts.restart import plan_restart
from hostelry.reconcile.plan.endpoint_state import GroupKey, InstanceFacts, PlanContext
from hostelry.reconcile.record import LoadedEndpoint, load
from hostelry.store.records import State

LOG = logging.getLogger(__name__)
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_CHARS)]
OptionalName = Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]


class RestartRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A restart of one `copy`, or of all copies of a `component` or an `endpoint`."""

    account: Name
    region: Name
    who: Name
    endpoint: OptionalName = ""
    component: OptionalName = ""
    copy: OptionalName = ""
    dry_run: bool = False


class DrainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A drain of an instance, or its cancellation."""

    account: Name
    region: Name
    who: Name
    instance: Name
    dry_run: bool = False


class ActDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of the routes. `facts` returns the reconciler's present facts.

    `note_act` is called with the endpoint and the name of each act that changed a record.
    """

    state: State
    facts: Callable[[], Mapping[str, InstanceFacts]]
    audit: AuditTrail
    clock: Clock
    get_shape: Callable[[str], Shape]
    note_act: Callable[[Scope, str, str], None] = lambda *_: None


class AskedAct(msgspec.Struct, frozen=True, kw_only=True):
    """An act that an operator requested. `key` finds its endpoint, `decide` plans it."""

    act: str
    who: str
    target: str
    key: Callable[[], GroupKey]
    decide: Callable[[LoadedEndpoint], PlannedAct]
    scope: Scope
    dry_run: bool


class OperatorActRoutes:
    """Handlers of the operator's acts."""

    def __init__(self, deps: ActDeps) -> None:
        self._deps = deps

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/acts/restart", self.restart, methods=["POST"]),
            Route("/internal/acts/drain", self.drain, methods=["POST"]),
            Route("/internal/acts/undrain", self.undrain, methods=["POST"]),
        )

    async def restart(self, request: Request) -> Response:
        """Replace copies by new copies, one after another within a component or variant."""
        return await self._answer(request, self._restart)

    async def drain(self, request: Request) -> Response:
        """End an instance once its copies are replaced on other instances."""
        return await self._answer(request, self._drain)

    async def undrain(self, request: Request) -> Response:
        """Cancel a drain before its instance ends."""
        return await self._answer(request, self._undrain)

    async def _answer(self, request: Request, parse: Callable[[bytes], AskedAct]) -> Response:
        try:
            asked = parse(await request.body())
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return JsonResponse({"error": f"no act: {error}"}, 400)
        try:
            shown = await asyncio.to_thread(self._perform, asked)
        except ServiceError as error:
            return JsonResponse({"error": error.message}, error.http_status)
        except RetryableError as error:
            return JsonResponse({"error": f"Try again: {error}"}, 503)
        except OSError as error:
            message = f"The audit log cannot be written, so nothing was done: {error}"
            return JsonResponse({"error": message}, 507)
        return JsonResponse(shown)

    def _restart(self, body: bytes) -> AskedAct:
        asked = decode(body, RestartRequest)
        scope = Scope(asked.account, asked.region)
        kind = next((it for it in ("copy", "component", "endpoint") if getattr(asked, it)), None)
        if kind is None or (asked.copy and asked.component):
            raise msgspec.ValidationError("name one copy, one component or one endpoint")

        def key() -> GroupKey:
            name = self._find_endpoint(scope, asked)
            if asked.endpoint not in ("", name):
                raise report_unknown(f"It is on endpoint {name}, not on {asked.endpoint}.")
            return GroupKey(scope, name)

        def decide(loaded: LoadedEndpoint) -> PlannedAct:
            component, copy_id = asked.component or None, asked.copy or None
            context = self._context()
            return plan_restart(loaded.state, context, component=component, copy_id=copy_id)

        return AskedAct(
            act="restart",
            who=asked.who,
            target=f"{kind} {getattr(asked, kind)}",
            key=key,
            decide=decide,
            scope=scope,
            dry_run=asked.dry_run,
        )

    def _drain(self, body: bytes) -> AskedAct:
        return self._on_instance(
            "drain",
            decode(body, DrainRequest),
            lambda loaded, name: plan_drain(loaded.state, name, self._context()),
        )

    def _undrain(self, body: bytes) -> AskedAct:
        return self._on_instance(
            "undrain",
            decode(body, DrainRequest),
            lambda loaded, name: plan_undrain(loaded.state, name),
        )

    def _on_instance(
        self, act: str, asked: DrainRequest, decide: Callable[[LoadedEndpoint, str], PlannedAct]
    ) -> AskedAct:
        scope = Scope(asked.account, asked.region)

        def key() -> GroupKey:
            found = self._deps.state.instances.get(scope, asked.instance)
            if found is None:
                raise report_unknown(f"There is no instance {asked.instance}.")
            return GroupKey(scope, found.value.endpoint_name)

        return AskedAct(
            act=act,
            who=asked.who,
            target=f"instance {asked.instance}",
            key=key,
            decide=lambda loaded: decide(loaded, asked.instance),
            scope=scope,
            dry_run=asked.dry_run,
        )

    def _find_endpoint(self, scope: Scope, asked: RestartRequest) -> str:
        state = self._deps.state
        if asked.copy:
            copy = state.copies.get(scope, asked.copy)
            if copy is None:
                raise report_unknown(f"There is no copy {asked.copy}.")
            return copy.value.endpoint_name
        if asked.component:
            component = state.components.get(scope, asked.component)
            if component is None:
                raise report_unknown(f"There is no inference component {asked.component}.")
            return component.value.endpoint_name
        if state.endpoints.get(scope, asked.endpoint) is None:
            raise report_unknown(f"There is no endpoint {asked.endpoint}.")
        return asked.endpoint

    def _context(self) -> PlanContext:
        deps = self._deps
        return PlanContext(
            now=deps.clock.now(),
            new_instance_id=new_instance_id,
            new_copy_id=new_copy_id,
            get_shape=deps.get_shape,
        )

    def _perform(self, asked: AskedAct) -> dict[str, Any]:
        """Decide, audit and record the act. Runs in a thread."""
        endpoint = ""
        try:
            with self._deps.state.writing:
                key = asked.key()
                endpoint = key.endpoint_name
                loaded = load(self._deps.state, key, self._deps.facts())
                act = asked.decide(loaded)
                if not asked.dry_run:
                    # The log entry comes first, so that no act is missing in the log.
                    self._audit(asked, endpoint, "accepted")
                    self._record(loaded, act)
        except (ServiceError, RetryableError) as error:
            if not asked.dry_run:
                what = "refused" if isinstance(error, ServiceError) else "failed"
                self._audit(asked, endpoint, f"{what}: {error}")
            raise
        if not asked.dry_run and act.record is not None:
            self._deps.note_act(asked.scope, endpoint, asked.act)
        return {
            "act": act.act,
            "target": act.target,
            "endpoint": act.endpoint,
            "summary": act.summary,
            "steps": msgspec.to_builtins(act.steps),  # for each copy
            "already": act.record is None,
            "dry_run": asked.dry_run,
        }

    def _record(self, loaded: LoadedEndpoint, act: PlannedAct) -> None:
        state, scope, record = self._deps.state, loaded.key.scope, act.record
        if isinstance(record, Endpoint):
            expect = loaded.versions["endpoint"][record.name]
            state.endpoints.put(scope, record.name, record, expect=expect)
        elif record is not None:
            expect = loaded.versions["instance"][record.id]
            state.instances.put(scope, record.id, record, expect=expect)

    def _audit(self, asked: AskedAct, endpoint: str, outcome: str) -> None:
        self._deps.audit.append(
            AuditEntry(
                at=self._deps.clock.now(),
                who=asked.who,
                act=asked.act,
                target=asked.target,
                outcome=outcome[:MAX_CHARS],
                endpoint=endpoint,
                account=asked.scope.account,
                region=asked.scope.region,
            )
        )
