"""GET /internal/comparison: whether a variant or component of an endpoint is worse than another.

The requests of two names are counted from the minute before the first question, as long as clients
ask. Without questions, nothing is counted.
"""

import asyncio
import math
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hostelry.base.clock import Clock
from hostelry.base.json_response import JsonResponse
from hostelry.comparison.confidence import Bounds
from hostelry.comparison.verdict import (
    NO_REQUESTS,
    DivergenceFinding,
    Finding,
    VersionEvidence,
    compare_versions,
)
from hostelry.domain.load import NO_DIVERGENCE, Divergence, LoadKey, SecondLoad
from hostelry.domain.scope import Scope
from hostelry.domain.traffic import MOST, Allowance, build_allowance
from hostelry.metrics.sagemaker.load_aggregator import DETAILS_S, LoadAggregator
from hostelry.store.records import State

FORGET_S = 600.0
MAX_PAIRS = 100
MILLION = 1e6
Pair = tuple[LoadKey, LoadKey]


class _Counted(msgspec.Struct, kw_only=True):
    """The evidence on a pair since the second `since`. History is included through `seeded`."""

    since: int
    seeded: int
    asked_at: float
    old: VersionEvidence = NO_REQUESTS
    new: VersionEvidence = NO_REQUESTS
    answers: Divergence = NO_DIVERGENCE


class Comparisons:
    """Evidence on pairs of names, and the route. Thread-safe.

    `aggregator` delivers the loads of each second. A pair is kept for `FORGET_S` after a question.
    """

    def __init__(
        self, scope: Scope, state: State, aggregator: LoadAggregator, clock: Clock
    ) -> None:
        self._scope = scope
        self._state = state
        self._aggregator = aggregator
        self._clock = clock
        self._lock = threading.Lock()
        self._pairs: dict[Pair, _Counted] = {}
        aggregator.subscribe(self._take)

    def routes(self) -> tuple[Route, ...]:
        """The route."""
        return (Route("/internal/comparison", self.compare, methods=["GET"]),)

    async def compare(self, request: Request) -> Response:
        """Compare `new` with `old`. 400 for invalid numbers, 404 for unknown names."""
        try:
            asked = request.query_params
            allowance = build_allowance({it: asked[it] for it in MOST if it in asked})
        except ValueError as error:
            return Response(f"{error}.", 400)
        return await asyncio.to_thread(self._answer, request.query_params, allowance)

    def _answer(self, asked: QueryParams, allowance: Allowance) -> Response:
        endpoint, names = asked.get("endpoint", ""), [asked.get("old", ""), asked.get("new", "")]
        known = self._list_keys(endpoint)
        unknown = [it for it in names if it not in known]
        if unknown:
            there = ", ".join(sorted(known)) or "none: there is no such endpoint"
            return Response(f"{unknown[0]!r} is not of endpoint {endpoint!r}; it has {there}.", 404)
        if allowance.divergence is not None and not self._is_mirrored(endpoint, names):
            return Response(
                f"Answers are compared where one of both is the shadow variant of endpoint"
                f" {endpoint!r}; {names[0]!r} and {names[1]!r} answer different requests.",
                400,
            )
        counted = self._count((known[names[0]], known[names[1]]))
        verdict = compare_versions(counted.old, counted.new, allowance, counted.answers)
        return JsonResponse(
            {
                "outcome": verdict.outcome.value,
                "since": counted.since,
                "requests": {"old": counted.old.finished, "new": counted.new.finished},
                "measures": [_show(it) for it in verdict.findings],
                "divergence": verdict.divergence and _show_divergence(verdict.divergence),
            }
        )

    def _list_keys(self, endpoint_name: str) -> dict[str, LoadKey]:
        """The endpoint's load keys by variant name, or by component name if it has components."""
        found = self._state.endpoints.get(self._scope, endpoint_name)
        if found is None:
            return {}
        keys = {
            variant.variant.name: LoadKey(
                scope=self._scope, endpoint_name=endpoint_name, variant_name=variant.variant.name
            )
            for variant in found.value.active.variants
        }
        if not found.value.takes_components:
            return keys
        return {
            stored.value.name: LoadKey(
                scope=self._scope,
                endpoint_name=endpoint_name,
                variant_name=stored.value.variant_name,
                component_name=stored.value.name,
            )
            for stored in self._state.components.list(self._scope)
            if stored.value.endpoint_name == endpoint_name
        }

    def _is_mirrored(self, endpoint_name: str, names: Sequence[str]) -> bool:
        """Whether exactly one of the names is the endpoint's shadow variant."""
        found = self._state.endpoints.get(self._scope, endpoint_name)
        shadow = None if found is None else found.value.active.shadow
        return shadow is not None and names.count(shadow.variant.name) == 1

    def _count(self, pair: Pair) -> _Counted:
        """Get the evidence on a pair. From now on the pair is counted."""
        now = self._clock.now()
        with self._lock:
            for other in [it for it, known in self._pairs.items() if _is_idle(known, now)]:
                del self._pairs[other]
            counted = self._pairs.get(pair)
            if counted is None:
                if len(self._pairs) >= MAX_PAIRS:
                    del self._pairs[min(self._pairs, key=lambda it: self._pairs[it].asked_at)]
                through = self._aggregator.closed_through
                since = max(0, through - DETAILS_S + 1)
                counted = self._pairs[pair] = _Counted(since=since, seeded=through, asked_at=now)
                for key in pair:
                    seen = self._aggregator.recent(key, since)
                    _add(counted, pair, [it for it in seen if it.second <= through])
            counted.asked_at = now
            return replace(counted)

    def _take(self, second: int, loads: Sequence[SecondLoad]) -> None:
        if not self._pairs:
            return
        with self._lock:
            by_key = {it.key: it for it in loads}
            for pair, counted in self._pairs.items():
                if second <= counted.seeded:
                    continue
                _add(counted, pair, [by_key[it] for it in pair if it in by_key])


def _is_idle(counted: _Counted, now: float) -> bool:
    return now - counted.asked_at > FORGET_S


def _add(counted: _Counted, pair: Pair, loads: Sequence[SecondLoad]) -> None:
    for load in loads:
        counted.answers = counted.answers.plus(load.divergence)
        if load.key == pair[0]:
            counted.old = counted.old.plus(load)
        else:
            counted.new = counted.new.plus(load)


def _show(finding: Finding) -> dict[str, Any]:
    return {
        "measure": finding.measure,
        "outcome": finding.outcome.value,
        "old": _side(finding.old_seen, finding.old),
        "new": _side(finding.new_seen, finding.new),
    }


def _show_divergence(finding: DivergenceFinding) -> dict[str, Any]:
    """The share of answers that differ, and the median distance, from 0 to 1."""
    bounds = finding.median_bounds
    median = Bounds(low=bounds.low / MILLION, high=bounds.high / MILLION)
    return {
        "pairs": finding.seen.pairs,
        "exact": finding.seen.exact,
        "outcome": None if finding.outcome is None else finding.outcome.value,
        "differing": _side(finding.differing, finding.bounds),
        "distance_p50": _side(finding.median_millionths / MILLION, median),
    }


def _side(seen: float, bounds: Bounds) -> dict[str, float | None]:
    """The measured value and its bounds. `high` is missing (None) without an upper bound."""
    high = bounds.high if math.isfinite(bounds.high) else None
    return {"seen": seen, "low": bounds.low, "high": high}
