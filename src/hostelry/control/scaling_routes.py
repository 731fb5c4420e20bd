"""Routes of `hostelry scaling`: scalable targets and their timelines."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json_response import JsonResponse
from hostelry.domain.endpoint import Endpoint
from hostelry.domain.scaling import (
    Dimension,
    ScalableTarget,
    ScalingActivity,
    ScalingPolicy,
    ScheduledAction,
)
from hostelry.domain.scope import Scope
from hostelry.domain.update_history import known_updates, update_progress
from hostelry.scaling.decide.responsive.options import build_options_tag
from hostelry.scaling.decide.schedule import find_next_due
from hostelry.scaling.loop.capacity import parse_names
from hostelry.scaling.loop.history import NAMES, History
from hostelry.scaling.loop.responsive_targets import find_responsive_targets
from hostelry.scaling.loop.scaler import TargetScaler
from hostelry.store.records import State

DEFAULT_SINCE_S = 900.0
MOST_SINCE_S = 15 * 24 * 3600.0
SHOWN_ACTIVITIES = 50


class ScalingRoutes:
    """Handlers of the scaling routes."""

    def __init__(
        self,
        state: State,
        scaler: TargetScaler,
        history: History,
        clock: Clock,
        pace: float = 1.0,
        verdict_of: Callable[[Endpoint], str | None] = lambda _: None,
    ) -> None:
        self._state = state
        self._scaler = scaler
        self._history = history
        self._clock = clock
        self._pace = pace
        self._verdict_of = verdict_of

    def routes(self) -> tuple[Route, ...]:
        """The routes."""
        return (
            Route("/internal/scaling", self.scaling, methods=["GET"]),
            Route("/internal/scaling/timeline", self.timeline, methods=["GET"]),
        )

    async def scaling(self, request: Request) -> Response:
        """Every scalable target with its capacity, policies, schedules and newest activities."""
        shown = await asyncio.to_thread(self.document)
        return JsonResponse(shown)

    async def timeline(self, request: Request) -> Response:
        """Load, capacity and acts of an endpoint's targets over the last `since_s` seconds."""
        query = request.query_params
        try:
            since_s = float(query.get("since_s", DEFAULT_SINCE_S))
        except ValueError:
            since_s = -1.0
        if not 0.0 < since_s <= MOST_SINCE_S:
            return Response(f"since_s must be more than 0 and at most {MOST_SINCE_S:.0f}", 400)
        endpoint, component = query.get("endpoint", ""), query.get("component") or None
        shown = await asyncio.to_thread(self.timelines, endpoint, component, since_s)
        return JsonResponse(shown)

    def document(self) -> dict[str, Any]:
        """The answer of `scaling`."""
        chosen = find_responsive_targets(self._state)
        responsive = {
            (key.scope, it.resource_id, it.dimension): build_options_tag(it.options)
            for key, it in chosen.watched.items()
        }
        targets = []
        for stored in self._state.scalable_targets.list():
            target = stored.value
            place = (target.scope, target.resource_id, target.dimension)
            targets.append({**self._show_target(target), "responsive": responsive.get(place)})
        refused = [{"arn": arn, "why": why} for arn, why in sorted(chosen.refused.items())]
        return {"now": self._clock.now(), "targets": targets, "not_responsive": refused}

    def timelines(self, endpoint: str, component: str | None, since_s: float) -> dict[str, Any]:
        """The answer of `timeline`: a timeline per target of the endpoint, or of the component.

        Without a component it also has the endpoint's updates that were under way in this time.
        """
        now = self._clock.now()
        found = []
        for stored in self._state.scalable_targets.list():
            place = self._name_place(stored.value)
            if place["endpoint"] == endpoint and component in (None, place["component"]):
                found.append(self._build_timeline(stored.value, place, now, now - since_s))
        updates = [] if component is not None else self._list_updates(endpoint, now - since_s)
        return {"now": now, "since": now - since_s, "timelines": found, "updates": updates}

    def _list_updates(self, endpoint: str, since: float) -> list[dict[str, Any]]:
        """The updates that were under way after `since`, of all endpoints with this name."""
        named = (it.value for it in self._state.endpoints.list() if it.value.name == endpoint)
        every = (update for it in named for update in known_updates(it))
        shown = [it for it in every if it.ended_at is None or it.ended_at >= since]
        found: list[dict[str, Any]] = msgspec.to_builtins(shown)
        return found

    def _build_timeline(
        self, target: ScalableTarget, place: Mapping[str, Any], now: float, since: float
    ) -> dict[str, Any]:
        activities = self._list_activities(target)
        shown = [
            activity
            for activity in activities
            if not activity.not_scaled
            and max(activity.started_at, _find_answer_time(activity)) >= since
        ]
        return {
            **place,
            "update": self._describe_update(target.scope, place["endpoint"], now),
            "min": target.min_capacity,
            "max": target.max_capacity,
            "acts": [show_activity(it) for it in reversed(shown)],
            "series": {it: self._history.points(target, it, since, now) for it in NAMES},
        }

    def _describe_update(self, scope: Scope, endpoint: str, now: float) -> str | None:
        """The progress of the endpoint's update. None if no new fleet serves."""
        stored = self._state.endpoints.get(scope, endpoint)
        if stored is None:
            return None
        verdict = self._verdict_of(stored.value)
        return update_progress(stored.value, now, self._pace, verdict)

    def _show_target(self, target: ScalableTarget) -> dict[str, Any]:
        found = self._scaler.capacities.find(target.scope, target.resource_id, target.dimension)
        last = self._scaler.last_decision(target)
        return {
            **self._name_place(target),
            "account": target.scope.account,
            "region": target.scope.region,
            "min": target.min_capacity,
            "max": target.max_capacity,
            "suspended": msgspec.to_builtins(target.suspended),
            "desired": None if found is None else found.desired,
            "serving": None if found is None else found.serving,
            "status": None if found is None else found.status,
            "problem": None if found is None else found.problem,
            "last_decision": None if last is None else {"at": last.at, "text": last.text},
            "policies": [self._show_policy(it) for it in self._list_policies(target)],
            "schedules": [self._show_schedule(it) for it in self._list_schedules(target)],
            "activities": [*map(show_activity, self._list_activities(target)[:SHOWN_ACTIVITIES])],
        }

    def _name_place(self, target: ScalableTarget) -> dict[str, Any]:
        """The names of a target's endpoint, variant and component."""
        names = parse_names(target.resource_id)
        endpoint: str | None = names[0]
        component = None
        if target.dimension is Dimension.COPIES:
            component = names[0]
            stored = self._state.components.get(target.scope, component)
            endpoint = None if stored is None else stored.value.endpoint_name
        return {
            "resource_id": target.resource_id,
            "dimension": target.dimension.value,
            "endpoint": endpoint,
            "component": component,
            "variant": names[1] if len(names) > 1 else None,
        }

    def _list_policies(self, target: ScalableTarget) -> list[ScalingPolicy]:
        every = (it.value for it in self._state.scaling_policies.list(target.scope))
        return [it for it in every if _belongs_to(it, target)]

    def _list_schedules(self, target: ScalableTarget) -> list[ScheduledAction]:
        every = (it.value for it in self._state.scheduled_actions.list(target.scope))
        return [it for it in every if _belongs_to(it, target)]

    def _list_activities(self, target: ScalableTarget) -> list[ScalingActivity]:
        return self._scaler.book.of(target.scope, target.resource_id, target.dimension)

    def _show_policy(self, policy: ScalingPolicy) -> dict[str, Any]:
        alarms = []
        for name in policy.alarm_names:
            stored = self._state.metric_alarms.get(policy.scope, name)
            state = None if stored is None else stored.value.status.state.value
            reason = None if stored is None else stored.value.status.reason
            alarms.append({"name": name, "state": state, "reason": reason})
        return {
            "name": policy.name,
            "tracking": msgspec.to_builtins(policy.tracking),
            "stepping": msgspec.to_builtins(policy.stepping),
            "alarms": alarms,
        }

    def _show_schedule(self, action: ScheduledAction) -> dict[str, Any]:
        try:
            following = find_next_due(action, self._clock.now())
        except ValueError:
            following = None
        return {
            "name": action.name,
            "schedule": action.schedule,
            "timezone": action.timezone,
            "min": action.min_capacity,
            "max": action.max_capacity,
            "next_at": following,
        }


def _belongs_to(owned: ScalingPolicy | ScheduledAction, target: ScalableTarget) -> bool:
    return (owned.resource_id, owned.dimension) == (target.resource_id, target.dimension)


def _find_answer_time(activity: ScalingActivity) -> float:
    receipt = activity.receipt
    return 0.0 if receipt is None or receipt.answered_at is None else receipt.answered_at


def show_activity(activity: ScalingActivity) -> dict[str, Any]:
    """An activity with its receipt, as plain JSON values."""
    return {
        "id": activity.id,
        "from": activity.from_capacity,
        "to": activity.to_capacity,
        "cause": activity.cause,
        "by": activity.policy_name,
        "description": activity.description,
        "status": activity.status.value,
        "status_message": activity.status_message,
        "started_at": activity.started_at,
        "ended_at": activity.ended_at,
        "not_scaled": [it.code for it in activity.not_scaled],
        "receipt": msgspec.json.decode(activity.details) if activity.details else None,
    }
