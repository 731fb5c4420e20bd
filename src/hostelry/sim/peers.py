"""Other systems' rules of scaling, as pure functions, to be compared with ours.

Each takes the values that its system would see and returns the capacity that it would ask for. Pods
and instances are not part of a rule.
"""

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace


class KnativeRule(msgspec.Struct, frozen=True, kw_only=True):
    """Knative's pod autoscaler: concurrency per pod, a stable and a panic window.

    `target` is the concurrency per pod that it aims at. Source: knative/serving,
    pkg/autoscaler/scaling/autoscaler.go and config/core/configmaps/autoscaler.yaml (defaults).
    """

    target: float
    stable_window_s: int = 60
    panic_window_s: int = 6  # panic-window-percentage 10
    panic_threshold: float = 2.0  # panic-threshold-percentage 200
    max_scale_up: float = 1000.0
    max_scale_down: float = 2.0
    tick_s: int = 2


class KnativeState(msgspec.Struct, frozen=True, kw_only=True):
    """`panics_since` is when panic was last called for, `most` the highest number desired in it."""

    panics_since: float | None = None
    most: int = 0


def knative(
    rule: KnativeRule, state: KnativeState, in_flight: Sequence[float], ready: int, now: float
) -> tuple[KnativeState, int]:
    """The number desired at a tick. `in_flight` are means by second, newest last."""
    if not in_flight:
        return state, ready
    stable = _mean(in_flight[-rule.stable_window_s :])
    panic = _mean(in_flight[-rule.panic_window_s :])
    pods = max(ready, 1)
    up, down = math.ceil(rule.max_scale_up * pods), math.floor(pods / rule.max_scale_down)
    by_stable = min(max(math.ceil(stable / rule.target), down), up)
    by_panic = min(max(math.ceil(panic / rule.target), down), up)
    if math.ceil(panic / rule.target) / pods >= rule.panic_threshold:
        most = max(state.most if state.panics_since is not None else 0, ready)
        state = KnativeState(panics_since=now, most=most)
    elif state.panics_since is not None and now > state.panics_since + rule.stable_window_s:
        state = KnativeState()
    if state.panics_since is None:
        return state, by_stable
    state = replace(state, most=max(state.most, by_stable, by_panic))
    return state, state.most


class RayServeRule(msgspec.Struct, frozen=True, kw_only=True):
    """Ray Serve's autoscaling of a deployment, with its defaults.

    `target` is target_ongoing_requests (its own default is 2). Source: ray-project/ray,
    python/ray/serve/config.py (AutoscalingConfig) and serve/autoscaling_policy.py.
    """

    target: float
    look_back_s: int = 30
    push_every_s: int = 10
    upscale_delay_s: float = 30.0
    downscale_delay_s: float = 600.0


class RayServeState(msgspec.Struct, frozen=True, kw_only=True):
    """Since when more (or fewer) replicas have been wanted without a break."""

    more_since: float | None = None
    fewer_since: float | None = None


def ray_serve(
    rule: RayServeRule, state: RayServeState, in_flight: Sequence[float], replicas: int, now: float
) -> tuple[RayServeState, int]:
    """The number desired at one second. `in_flight` are means by second as pushed, newest last.

    The caller passes the pushed seconds: up to the last multiple of `push_every_s`.
    """
    if not in_flight:
        return RayServeState(), replicas
    wanted = math.ceil(_mean(in_flight[-rule.look_back_s :]) / rule.target)
    if wanted > replicas:
        since = now if state.more_since is None else state.more_since
        held = now - since >= rule.upscale_delay_s
        return (RayServeState(), wanted) if held else (RayServeState(more_since=since), replicas)
    if wanted < replicas:
        since = now if state.fewer_since is None else state.fewer_since
        held = now - since >= rule.downscale_delay_s
        return (RayServeState(), wanted) if held else (RayServeState(fewer_since=since), replicas)
    return RayServeState(), replicas


class PointsRule(msgspec.Struct, frozen=True, kw_only=True):
    """A target-tracking alarm that watches a metric of fixed periods.

    Source: SageMaker developer guide, "Autoscale an endpoint": three points above the target, of a
    minute each, or of ten seconds for the high-resolution types.
    """

    target: float
    period_s: int = 60
    num_points: int = 3


def aws_points(rule: PointsRule, points: Sequence[float], capacity: int) -> int:
    """The capacity wanted after the newest of `points`, which are per copy, one a period."""
    newest = points[-rule.num_points :]
    if len(newest) < rule.num_points or min(newest) <= rule.target:
        return capacity
    return max(capacity, math.ceil(capacity * newest[-1] / rule.target))


def naive_mean(
    target: float, in_flight: Sequence[float], capacity: int, window_s: int = 2, over: float = 1.0
) -> int:
    """A threshold on a short mean: a fast detector without control of its error rate."""
    mean = _mean(in_flight[-window_s:])
    wanted = math.ceil(mean / target)
    return wanted if mean > over * target * capacity else capacity


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
