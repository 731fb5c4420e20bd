"""The endpoint's document, made from the platform's reports."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.console.recorded_answers import endpoint_of, recorded, with_copies

from hostelry.console.platform import ApiQuery
from hostelry.console.views import endpoint, endpoints

NOW = 1795672900.0
SHOP = {"name": "shop", "kind": "component", "target": "recommend"}


def answers() -> dict[str, Any]:
    names = ("state", "load", "timeline", "scaling", "alarms")
    return {name: recorded(name) for name in names}


def shown(params: dict[str, str] | None = None, **changed: Any) -> dict[str, Any]:
    return endpoint.document({**answers(), **changed}, params or SHOP, NOW)


def half_down() -> dict[str, Any]:
    """The state where `shop` serves less than it should."""
    state: dict[str, Any] = recorded("state")
    endpoint_of(state, "shop")["serving"] |= {"tone": "warn", "trouble": "serves in part"}
    return state


def test_an_endpoint_shows_its_targets_with_their_load_and_what_keeps_others_from_a_place() -> None:
    targets = shown()["targets"]
    recommend, giant = targets["component/recommend"], targets["component/forecast-70b"]
    assert recommend["ready"] == recommend["desired"] == 2
    assert recommend["rate"] > 10
    assert 0 < recommend["p50"] <= recommend["p90"] <= recommend["p99"]
    assert (giant["ready"], giant["desired"]) == (0, 1)
    assert "the largest free block" in giant["reason"]
    assert "rate" not in giant


def test_an_endpoint_that_serves_too_little_has_a_tone_and_unknown_load_is_not_zero() -> None:
    found = shown(load=None, state=half_down())
    assert (found["tone"], found["serving"]) == ("warn", "serves in part")
    assert (found["load_known"], shown()["load_known"]) == (False, True)


def test_the_chosen_target_has_requests_in_flight_and_queued_by_time() -> None:
    traffic = shown()["traffic"]
    assert len(traffic) == 4
    assert all(len(it) == 5 for it in traffic.values())


@cases(
    "params, chosen",
    case("the busiest is suggested", {"name": "shop"}, "component/recommend"),
    case("a variant of models", {"name": "checkout"}, "variant/AllTraffic"),
    case("as asked", {**SHOP, "target": "forecast-70b"}, "component/forecast-70b"),
    case("no such kind", {**SHOP, "kind": "unknown"}, "component/recommend"),
)
def test_a_target_is_chosen(params: dict[str, str], chosen: str) -> None:
    assert shown(params)["chosen"] == chosen


def test_each_act_has_its_instants_its_signal_and_its_cause() -> None:
    (target,) = shown()["scaling"].values()
    out, back = sorted(target["acts"].values(), key=lambda it: it["at"])
    assert (out["from"], out["to"], out["status"]) == (2, 3, "Successful")
    assert out["t0"] < out["t1"] < out["t2"]
    assert out["signal"]["target"] == 2.0
    assert "triggered policy concurrency" in out["cause"]
    assert (back["from"], back["to"], back["t0"]) == (3, 2, None)
    assert [it for _, it in sorted(target["desired"].items())][:3] == [2.0, 3.0, 2.0]
    assert target["decision"]["text"]


def test_a_past_update_has_its_steps_its_cause_and_its_alarms() -> None:
    (update,) = shown({"name": "checkout"})["updates"].values()
    assert update["outcome"] == "rolled back"
    assert update["alarms"] == ["checkout-errors"]
    assert [it["share"] for it in update["steps"]] == [0.0, 0.5]
    assert "ALARM" in update["cause"]


@cases(
    "name, prefixes",
    case("by component", "shop", {"TargetTracking-inference-component/recommend"}),
    case("by endpoint, and watched by its update", "checkout", {"checkout-errors"}),
    case("none", "invoices", set()),
)
def test_only_its_own_alarms_are_shown(name: str, prefixes: set[str]) -> None:
    found = shown({"name": name})["alarms"]
    assert {it.partition("-Alarm")[0] for it in found} == prefixes


def test_a_failed_endpoint_has_its_reason() -> None:
    found = shown({"name": "invoices"})
    assert (found["status"], found["copies"]) == ("Failed", {})
    assert "exited with code 3" in found["reason"]


def test_a_copy_that_ended_has_its_cause_with_the_end_of_its_log() -> None:
    state = recorded("state")
    shop = endpoint_of(state, "shop")
    log = "\n".join(f"line {it}" for it in range(100))
    end = {"at": NOW - 5, "cause": "It was killed by signal 9.", "log_tail": log}
    shop["copies"][0] |= {"last_end": end, "restarts": 1}
    found = shown(state=state)["copies"][shop["copies"][0]["id"]]
    assert (found["restarts"], found["end"]["cause"]) == (1, end["cause"])
    assert found["end"]["log_tail"] == [f"line {it}" for it in range(88, 100)]


def test_an_unknown_endpoint_names_those_that_there_are() -> None:
    found = shown({"name": "nothing"})
    assert found["missing"] is True
    assert found["names"] == ["checkout", "invoices", "shop"]


def test_before_control_has_answered_nothing_is_claimed() -> None:
    assert endpoint.document({"state": None}, SHOP, NOW) == {"name": "shop", "now": NOW}
    assert shown(load=None, timeline=None, scaling=None, alarms=None)["targets"]


def test_metrics_are_milliseconds_and_rates_of_the_time_that_a_period_has_had() -> None:
    at = [NOW - NOW % 60 - 60, NOW - NOW % 60]
    stamps = [datetime.fromtimestamp(it, UTC) for it in at]
    results = [
        {"Id": "p50", "Timestamps": stamps, "Values": [1500.0, 2500.0]},
        {"Id": "requests", "Timestamps": stamps, "Values": [600.0, 40.0]},
        {"Id": "in_flight", "Timestamps": stamps, "Values": [2.0, 4.0]},
    ]
    found = shown({**SHOP, "minutes": "60"}, metrics={"MetricDataResults": results})
    first, second = (f"{it:.0f}" for it in at)
    assert found["latency"] == {
        first: [1.5, None, None, None, None],
        second: [2.5, None, None, None, None],
    }
    assert found["traffic"] == {first: [10.0, None, None, 2.0], second: [1.0, None, None, 4.0]}


@cases(
    "params, dimensions, period_s",
    case("of a component", SHOP, {"InferenceComponentName": "recommend"}, 60),
    case(
        "of a variant, over hours",
        {"name": "checkout", "kind": "variant", "target": "AllTraffic", "minutes": "360"},
        {"EndpointName": "checkout", "VariantName": "AllTraffic"},
        300,
    ),
)
def test_percentiles_are_asked_of_the_metric_store(
    params: dict[str, str], dimensions: dict[str, str], period_s: int
) -> None:
    query = endpoint.sources(params, NOW)["metrics"]
    assert isinstance(query, ApiQuery)
    assert (query.service, query.operation) == ("cloudwatch", "GetMetricData")
    assert query.parameters["StartTime"] < NOW < query.parameters["EndTime"]
    for one in query.parameters["MetricDataQueries"]:
        stat = one["MetricStat"]
        assert {it["Name"]: it["Value"] for it in stat["Metric"]["Dimensions"]} == dimensions
        assert stat["Period"] == period_s


@pytest.mark.parametrize("minutes", ["0", "-5", "1e9", "x", ""])
def test_no_other_time_is_asked_for_than_those_that_can_be_chosen(minutes: str) -> None:
    assert endpoint.parse_minutes({"minutes": minutes}) == 15
    assert "metrics" not in endpoint.sources({"name": "shop", "minutes": minutes}, NOW)


def test_a_thousand_copies_are_shown_without_their_logs() -> None:
    state = with_copies(recorded("state"), 1000, log_tail="x" * 4000)
    copies = shown(state=state)["copies"]
    assert len(copies) == 1002
    assert all(it["log"] == [] for it in copies.values())


def test_the_list_has_each_endpoint_with_its_load_and_its_trouble() -> None:
    found = endpoints.document({"state": recorded("state"), "load": recorded("loads")}, {}, NOW)
    rows = found["endpoints"]
    assert rows["shop"]["rate"] > 10
    shop = rows["shop"]
    assert (shop["unplaced"], shop["ready"], shop["desired"], shop["tone"]) == (1, 2, 2, None)
    less = endpoints.document({"state": half_down(), "load": None}, {}, NOW)["endpoints"]["shop"]
    assert (less["tone"], less["trouble"]) == ("warn", "serves in part")
    assert (rows["checkout"]["ready"], rows["checkout"]["p99"] > 0) == (2, True)
    assert (rows["invoices"]["status"], rows["invoices"]["rate"]) == ("Failed", 0)
    assert endpoints.document({"state": None, "load": None}, {}, NOW) == {
        "known": False,
        "endpoints": {},
    }
