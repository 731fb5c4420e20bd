"""Guards of an update, which roll it back while it runs or bakes: alarms, a limit, a verdict.

    a guard of an update                                   result
    ----------------------------------------------------   --------------------------------------
    an alarm is in ALARM, since before the update too      rolled back
    an alarm is in INSUFFICIENT_DATA                       none
    MaximumExecutionTimeoutInSeconds passed                rolled back
    the new fleet is worse than the old one                rolled back
    it is as good, LEAST_STEP_S after the step began,      the time of the step or bake is over
    and once the alarms have seen it
    the time of a step or of the bake is over, every       the next step. After the bake the update
    alarm evaluated since this control process started     is complete

Source: "Auto-Rollback Configuration and Monitoring" in the SageMaker developer guide.
"""

from collections.abc import Iterable, Iterator

from hostelry.comparison.fleet_verdict import WatchedUpdate
from hostelry.comparison.verdict import VersionOutcome
from hostelry.domain.alarm import AlarmState
from hostelry.domain.component import InferenceComponent
from hostelry.domain.endpoint import Bake, Deployment, Endpoint, EndpointStatus, Shift, UpdateGuard
from hostelry.domain.update_history import get_share
from hostelry.reconcile.plan.endpoint_state import EndpointState, PlanContext

FIRST_EVALUATION_S = 90.0  # alarms are evaluated once a minute, some seconds after its end
LEAST_STEP_S = 5.0  # of a step that a verdict ends


def find_guarding_alarms(state: EndpointState) -> frozenset[str]:
    """Names of the alarms that guard an update under way on the endpoint."""
    names = set() if state.endpoint is None else set(get_endpoint_alarms(state.endpoint))
    for component in state.dirty_components():
        names.update(get_component_alarms(component))
    return frozenset(names)


def get_endpoint_alarms(endpoint: Endpoint) -> tuple[str, ...]:
    """Names of the alarms that guard the endpoint's own update."""
    guarded = _get_guarded(endpoint)
    return () if guarded is None or guarded.guard is None else guarded.guard.alarm_names


def get_component_alarms(component: InferenceComponent) -> tuple[str, ...]:
    """Names of the alarms that guard a component's rolling update."""
    return () if component.rollout is None else component.rollout.policy.alarm_names


def find_alarm_failure(names: Iterable[str], context: PlanContext) -> str | None:
    """The reason for a rollback if one of the alarms is in ALARM. None if none is."""
    alarming = [it for it in names if context.alarms.get(it) is AlarmState.ALARM]
    if not alarming:
        return None
    quoted = ", ".join(f'"{it}"' for it in alarming)
    plural = "alarm" if len(alarming) == 1 else "alarms"
    return f"CloudWatch {plural} {quoted} went into ALARM state; the update was rolled back."


def find_guard_failure(deployment: Deployment, context: PlanContext) -> str | None:
    """Why an endpoint's update to `deployment` is rolled back. None while its guard allows it."""
    guard = deployment.guard
    if guard is None:
        return None
    limit_s = guard.max_execution_s
    if limit_s is not None and context.now >= deployment.started_at + limit_s:
        return (
            f"The update did not end within MaximumExecutionTimeoutInSeconds, {limit_s:g}; it was"
            " rolled back."
        )
    return find_alarm_failure(guard.alarm_names, context) or _find_verdict_failure(
        deployment, context
    )


def _find_verdict_failure(deployment: Deployment, context: PlanContext) -> str | None:
    verdict = context.verdict
    if verdict is None or verdict.generation != deployment.generation:
        return None
    return verdict.failure


def get_shift_end(guard: UpdateGuard, shift: Shift, context: PlanContext) -> float:
    """The instant at which the next step of the traffic's shift is due, as `get_bake_end`."""
    return _get_watch_end(guard, shift.since, guard.traffic.wait_s, context)


def get_bake_end(guard: UpdateGuard, bake: Bake, context: PlanContext) -> float:
    """The instant at which an endpoint's trial ends.

    A trial that ran out while no control process evaluated its alarms is extended: until each
    alarm has been evaluated once, at most by the length of the trial.
    """
    return _get_watch_end(guard, bake.since, guard.bake_s, context)


def _get_watch_end(guard: UpdateGuard, since: float, wait_s: float, context: PlanContext) -> float:
    ends_at, verdict = context.get_wait_end(since, wait_s), context.verdict
    if (
        verdict is not None
        and verdict.since == since
        and verdict.outcome is VersionOutcome.NO_WORSE
    ):
        ends_at = min(ends_at, since + max(LEAST_STEP_S, context.alarm_view_s))
    if not guard.alarm_names:
        return ends_at
    return max(ends_at, context.watched_since + min(FIRST_EVALUATION_S, wait_s / context.pace))


def list_bake_instants(state: EndpointState, context: PlanContext) -> Iterator[float]:
    """Instants at which time alone ends a step or a trial of an endpoint, or its update."""
    endpoint = state.endpoint
    guarded = None if endpoint is None else _get_guarded(endpoint)
    guard = None if guarded is None else guarded.guard
    if endpoint is None or guarded is None or guard is None:
        return
    if endpoint.shift is not None:
        yield get_shift_end(guard, endpoint.shift, context)
    if endpoint.bake is not None:
        yield get_bake_end(guard, endpoint.bake, context)
    if guard.max_execution_s is not None:
        yield guarded.started_at + guard.max_execution_s


def _get_guarded(endpoint: Endpoint) -> Deployment | None:
    """The deployment that an update under way may still be rolled back from."""
    if endpoint.status is not EndpointStatus.UPDATING:
        return None
    if endpoint.bake is None:
        has_failed = endpoint.shift is not None and endpoint.shift.failure is not None
        return None if has_failed else endpoint.pending
    return endpoint.active if endpoint.bake.failure is None else None


def find_watched_update(endpoint: Endpoint | None) -> WatchedUpdate | None:
    """The update under way that has a gate. None without an update, or if it is rolled back."""
    if endpoint is None or endpoint.status is not EndpointStatus.UPDATING:
        return None
    bake, under_way = endpoint.bake, endpoint.shift or endpoint.bake
    new = endpoint.active if bake is not None else endpoint.pending
    old = endpoint.active if bake is None else bake.before
    if new is None or new.guard is None or new.guard.allowance is None:
        return None
    if under_way is not None and under_way.failure is not None:
        return None
    has_all = all(get_share(endpoint, new, it) >= 1.0 for it in new.production)
    names = {it.variant.name for it in old.production}
    return WatchedUpdate(
        scope=endpoint.scope,
        endpoint_name=endpoint.name,
        generation=new.generation,
        variants=tuple(it.variant.name for it in new.production if it.variant.name in names),
        old_config=old.config.name,
        new_config=new.config.name,
        began_at=new.started_at,
        since=None if under_way is None else under_way.since,
        is_trial=under_way is not None and has_all,
        num_steps=new.num_steps,
        allowance=new.guard.allowance,
    )
