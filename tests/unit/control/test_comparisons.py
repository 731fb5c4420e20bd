"""Control's comparison of two variants: counted from a minute before the first look, once each."""

import asyncio
from typing import Any

import httpx
from msgspec.structs import replace
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.reconcile.samples import SCOPE, deployment, endpoint, variant

from hostelry.base.clock import ManualClock
from hostelry.cli.compare import comparison_lines
from hostelry.control.comparisons import FORGET_S, Comparisons
from hostelry.domain.load import (
    NO_DIVERGENCE,
    Distribution,
    Divergence,
    LoadKey,
    LoadReport,
    SecondLoad,
)
from hostelry.metrics.sagemaker.load_aggregator import LoadAggregator
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state


class Rig:
    """An endpoint of two variants, a worker that reports, and the route."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = open_state(MemoryStore())
        both = deployment(variant(name="blue", model="m"), variant(name="green", model="m"))
        found = endpoint(active=both)
        self.name = found.name
        self.state.endpoints.put(SCOPE, found.name, found, expect=None)
        self.aggregator = LoadAggregator(self.clock.now() - 100)
        self.routes = Comparisons(SCOPE, self.state, self.aggregator, self.clock)
        self.sequence = 0

    def mirror(self) -> None:
        """Make green the shadow of blue."""
        found = self.state.endpoints.get(SCOPE, self.name)
        assert found is not None
        active = found.value.active
        blue, green = active.variants
        shadow = replace(green, variant=replace(green.variant, is_shadow=True))
        mirrored = replace(found.value, active=replace(active, variants=(blue, shadow)))
        self.state.endpoints.put(SCOPE, self.name, mirrored, expect=found.version)

    def second(
        self,
        *,
        green_errors: int = 0,
        blue: int = 100,
        green: int = 20,
        answers: Divergence = NO_DIVERGENCE,
    ) -> None:
        """A second's requests, reported."""
        at = int(self.clock.now())
        self.clock.advance(1)
        self.sequence += 1
        loads = tuple(
            SecondLoad(
                key=LoadKey(scope=SCOPE, endpoint_name=self.name, variant_name=name),
                second=at,
                finished=count,
                errors_5xx=errors,
                model_latency_us=Distribution(values=(1000.0, 2000.0), counts=(3 * count, count)),
                divergence=answers if name == "green" else NO_DIVERGENCE,
            )
            for name, count, errors in (("blue", blue, 0), ("green", green, green_errors))
        )
        report = LoadReport(
            worker="w", started_at=1.0, sequence=self.sequence, seconds=loads, first=at, through=at
        )
        self.aggregator.take(report, self.clock.now())

    def get(self, **asked: str) -> httpx.Response:
        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(app=Starlette(routes=self.routes.routes()))
            async with httpx.AsyncClient(transport=transport, base_url="http://control") as http:
                query = {"endpoint": self.name, "old": "blue", "new": "green", **asked}
                return await http.get("/internal/comparison", params=query)

        return asyncio.run(main())

    def found(self, **asked: str) -> Any:
        answer = self.get(**asked)
        assert answer.status_code == 200, answer.text
        return answer.json()


def test_a_version_that_fails_is_worse_within_seconds_and_a_good_one_is_no_worse() -> None:
    rig = Rig()
    for _ in range(5):
        rig.second()
    found = rig.found()
    assert found["outcome"] == "undecided"
    assert found["requests"] == {"old": 500, "new": 100}, "of the minute before, too"
    for _ in range(100):
        rig.second()
    assert rig.found()["outcome"] == "no worse"
    assert rig.found()["requests"] == {"old": 10_500, "new": 2_100}, "each second counts once"
    rig.clock.advance(FORGET_S + 1)
    for _ in range(4):
        rig.second(green_errors=10)
    found = rig.found()
    assert found["outcome"] == "worse"
    assert found["requests"]["new"] == 80, "what nobody asked about is forgotten"
    lines = comparison_lines("blue", "green", found)
    assert lines[0] == "green against blue: worse"
    assert "50.00 % [" in lines[2]


def test_a_shadows_answers_are_shown_and_decide_where_a_share_may_differ() -> None:
    rig = Rig()
    refusal = rig.get(divergence="0.1")
    assert (refusal.status_code, "answer different requests" in refusal.text) == (400, True)
    assert rig.found()["divergence"] is None
    rig.mirror()
    apart = Distribution(values=(0.0, 5e5), counts=(20, 20))
    seen = Divergence(pairs=40, exact=10, close=20, distance_millionths=apart)
    for _ in range(5):
        rig.second(green=100, answers=seen)
    found = rig.found()
    assert (found["divergence"]["pairs"], found["divergence"]["exact"]) == (200, 50)
    assert found["divergence"]["outcome"] is None
    lines = comparison_lines("blue", "green", found)
    assert "of 200 pairs, 50 equal" in lines[-2]
    assert "50.00 % [" in lines[-2]
    assert lines[-1].startswith("distance p50")
    found = rig.found(divergence="0.1")
    assert (found["outcome"], found["divergence"]["outcome"]) == ("worse", "worse")


@cases(
    "asked, status, text",
    case("no such variant", {"new": "gone"}, 404, "'gone' is not of endpoint"),
    case("no endpoint", {"endpoint": "none"}, 404, "there is no such endpoint"),
    case("no alpha", {"alpha": "0"}, 400, "alpha is 0; it must be more than 0, at most 0.5."),
    case("too many", {"errors": "2"}, 400, "errors is 2; it must be from 0 to 1."),
    case("no number", {"latency": "x"}, 400, 'latency is "x"; it must be a number.'),
    case("not a number", {"latency": "nan"}, 400, "latency is nan"),
)
def test_what_cannot_be_compared_is_refused(asked: dict[str, str], status: int, text: str) -> None:
    answer = Rig().get(**asked)
    assert (answer.status_code, text in answer.text) == (status, True), answer.text
