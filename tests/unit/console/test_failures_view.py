"""Failures grouped by cause, with the next step for each."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from tests.cases import case, cases
from tests.unit.console.fake_platform import FakePlatform
from tests.unit.console.recorded_answers import endpoint_of, recorded, with_copies

from hostelry.console.platform import answer_to
from hostelry.console.views import endpoint as endpoint_view
from hostelry.console.views import failures

NOW = 1795672900.0


def groups(**sources: Any) -> list[dict[str, Any]]:
    found = failures.document(sources, {}, NOW)["groups"]
    assert [it["place"] for it in found.values()] == list(range(len(found)))
    return list(found.values())


def shop(**changes: Any) -> dict[str, Any]:
    """A state in which nothing fails except the given changes of `shop`."""
    state = recorded("state")
    only = endpoint_of(state, "shop")
    only["components"] = [it for it in only["components"] if it["status"] == "InService"]
    only |= changes
    return {"endpoints": [only]}


def test_what_fails_on_a_real_platform_is_there_each_with_a_next_step() -> None:
    found = groups(control=recorded("state"), gateway=recorded("failed"))
    assert [(it["when"], it["kind"], it["names"]) for it in found][:3] == [
        ("now", "endpoint", ["invoices"]),
        ("now", "component", ["forecast-70b"]),
        ("lately", "rollback", ["checkout"]),
    ]
    endpoint, component, rollback = found[:3]
    assert endpoint["text"].endswith("of group /aws/sagemaker/Endpoints/invoices.")
    assert endpoint["log"][-1] == "drill: last words, line 30 of 30"
    assert (endpoint["link"], endpoint["command"]) == (
        "endpoint/invoices",
        "hostelry logs invoices",
    )
    assert "the largest free block" in component["text"]
    assert (component["link"], component["command"]) == ("fleet", "hostelry explain forecast-70b")
    assert rollback["command"] == "hostelry trace --failed checkout --minutes 60"
    assert all(it["advice"] for it in found)
    assert all(it["link"] or it["command"] for it in found)


def test_a_component_whose_copies_fail_does_not_lack_a_place() -> None:
    state = recorded("state")
    for endpoint in state["endpoints"]:
        for component in endpoint["components"]:
            component["placed_copies"] = component["desired_copies"]
    group = next(it for it in groups(control=state) if it["kind"] == "component")
    assert group["command"] == "hostelry logs forecast-70b"
    assert group["link"].endswith("/component/forecast-70b")


def test_failed_calls_of_one_error_are_one_group_with_the_newest_call() -> None:
    answer = recorded("failed")
    first = answer["calls"][0]
    answer["calls"] = [{**first, "request_id": f"id-{it}", "at": NOW - it} for it in range(40)]
    (group,) = groups(gateway=answer)
    assert (group["kind"], group["when"], group["count"]) == ("call", "lately", 40)
    assert (group["newest"], group["since"]) == (NOW, NOW - 39)
    assert group["link"] == "call/id-0"
    assert group["text"].startswith("424 ModelError: Received")
    assert "https://" not in group["text"]


def test_errors_of_other_codes_and_endpoints_are_other_groups() -> None:
    first = recorded("failed")["calls"][0]
    calls = [{**first, "code": code, "endpoint": name} for code in "ab" for name in ("x", "y")]
    assert len(groups(gateway={"calls": calls})) == 4


def test_copies_that_fail_for_one_cause_are_one_group() -> None:
    reason = "The model server exited with code 1. It is started again in {} s."
    state = shop()
    for number, name in enumerate(("c-1", "c-2", "c-3")):
        with_copies(
            state, 1, id=name, phase="starting", reason=reason.format(number), log_tail="no x"
        )
    (group,) = groups(control=state)
    assert (group["kind"], group["count"], group["names"]) == ("copy", 3, ["recommend"])
    assert group["log"] == ["no x"]
    assert group["link"] == "endpoint/shop/component/recommend"


@cases(
    "ended_s_ago, minutes, num_groups",
    case("lately", 30, "15", 1),
    case("longer ago than looked back", 1200, "15", 0),
    case("looked back further", 1200, "60", 1),
    case("15 minutes without a number", 1200, "no number", 0),
)
def test_a_copy_that_ended_and_serves_again_was_a_failure(
    ended_s_ago: float, minutes: str, num_groups: int
) -> None:
    end = {"at": NOW - ended_s_ago, "cause": "It was killed by signal 9.", "log_tail": ""}
    state = with_copies(shop(), 1, last_end=end)
    found = failures.document({"control": state}, {"minutes": minutes}, NOW)
    assert len(found["groups"]) == num_groups
    for group in found["groups"].values():
        assert (group["when"], group["kind"]) == ("lately", "copy")
        assert "signal 9" in group["text"]
    assert found["now"] == 0


@cases(
    "changes, kind, text",
    case("a shift", {"shift": {"failure": "It errs."}}, "endpoint", "goes back"),
    case("a trial", {"bake": {"going_back": "It errs."}}, "endpoint", "goes back"),
)
def test_an_update_that_goes_back_is_a_failure(
    changes: dict[str, Any], kind: str, text: str
) -> None:
    (group,) = groups(control=shop(**changes))
    assert (group["kind"], group["when"]) == (kind, "now")
    assert text in group["text"]


@cases(
    "changes, text",
    case("a problem", {"problem": "No memory."}, "No memory."),
    case("silent", {"unreachable_since": NOW - 9}, "does not answer"),
)
def test_an_instance_in_trouble_is_a_failure(changes: dict[str, Any], text: str) -> None:
    state = shop()
    state["endpoints"][0]["instances"][0] |= changes
    (group,) = groups(control=state)
    assert group["kind"] == "instance"
    assert text in group["text"]


def test_adapters_that_fail_on_many_copies_are_one_group_of_their_alias() -> None:
    adapters = [{"id": "poet@3", "phase": "failed", "reason": "rank 512 is above 256"}]
    (group,) = groups(control=with_copies(shop(), 20, adapters=adapters))
    assert (group["kind"], group["count"], group["names"]) == ("adapter", 20, ["poet"])
    assert group["link"] == "endpoint/shop/component/poet"


def test_alarms_are_failures_but_those_that_scale() -> None:
    alarms = recorded("alarms")
    for alarm in alarms["MetricAlarms"]:
        alarm["StateValue"] = "ALARM"
    (group,) = groups(alarms=alarms)
    assert (group["kind"], group["names"], group["when"]) == ("alarm", ["checkout-errors"], "now")
    assert group["link"] == "endpoint/checkout"


def test_a_full_disk_of_the_jobs_process_comes_first() -> None:
    found = groups(control=recorded("state"), jobs={"trouble": "No space left on device"})
    assert (found[0]["kind"], found[0]["names"]) == ("platform", ["jobs"])


@cases(
    "uptimes_s, found",
    case("all run", {"up": 500.0, "control": 499.0}, []),
    case(
        "one does not", {"up": 500.0, "mirror": None}, [("now", ["mirror"], "hostelry logs mirror")]
    ),
    case("no supervisor", {"up": None, "control": 20.0}, [("now", ["up"], "hostelry up --detach")]),
    case(
        "one was started again",
        {"up": 500.0, "control": 20.0, "jobs": 499.0},
        [("lately", ["control"], "hostelry logs control")],
    ),
    case("one was, longer ago", {"up": 5000.0, "control": 1000.0}, []),
)
def test_processes_that_do_not_run_are_failures(
    uptimes_s: dict[str, float | None], found: list[tuple[str, list[str], str]]
) -> None:
    shown = groups(processes={"uptimes_s": uptimes_s})
    assert [(it["when"], it["names"], it["command"]) for it in shown] == found
    assert all(it["kind"] == "platform" for it in shown)


def test_nothing_fails_where_nothing_is_known() -> None:
    found = failures.document(dict.fromkeys(failures.sources({}, NOW)), {}, NOW)
    assert (found["groups"], found["checked"]) == ({}, [])


def test_names_and_groups_are_bounded() -> None:
    state = shop()
    component = state["endpoints"][0]["components"][0]
    alike = {"status": "Failed", "failure_reason": "It has no model."}
    failed = [{**component, "name": f"tenant-{it}", **alike} for it in range(1000)]
    state["endpoints"][0]["components"] = failed
    (group,) = groups(control=state)
    assert (len(group["names"]), group["names_left_out"]) == (20, 980)
    letters = "abcdefghijklmnopqrst"
    for place, one in enumerate(failed):
        one["failure_reason"] = (
            f"cause {letters[place % 20]} {letters[place // 20 % 20]} z{place // 400 * 'z'}"
        )
    assert len(groups(control=state)) == failures.MAX_GROUPS


class PagedAlarms(FakePlatform):
    """Answers DescribeAlarms with 250 alarms in pages of 100."""

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        first = int(parameters.get("NextToken", "0"))
        end = first + parameters["MaxRecords"]
        names = [f"a-{number}" for number in range(first, min(end, 250))]
        alarms = [{"AlarmName": it, "StateValue": "ALARM"} for it in names]
        rest = {"NextToken": str(end)} if end < 250 else {}
        return {"MetricAlarms": alarms, "CompositeAlarms": [], **rest}


@pytest.mark.parametrize(
    "queries",
    [failures.sources({}, NOW), endpoint_view.sources({"name": "shop"}, NOW)],
    ids=["failures", "endpoint"],
)
def test_alarms_beyond_the_first_page_are_shown(queries: Mapping[str, Any]) -> None:
    answer = asyncio.run(answer_to(PagedAlarms(), queries["alarms"]))
    assert [name for name, _ in endpoint_view.alarms_shown(answer)] == [
        f"a-{number}" for number in range(250)
    ]
