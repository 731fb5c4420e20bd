"""Schedules by time zone: the quiet hours, the saving, and the document with the actions."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.advisor.mixes import AXES, MACHINE, SERVICE, build_mix, build_model

from hostelry.advisor.advice import advise, build_choice
from hostelry.advisor.document import build_document
from hostelry.advisor.options import HostingOption as Option
from hostelry.advisor.plans import OptionPlan, plan_option
from hostelry.advisor.policies import QuietHours
from hostelry.advisor.schedules import find_quiet_hours, list_quiet_hours
from hostelry.advisor.traffic import DrawnCalls, MixTraffic
from hostelry.advisor.values import GIB, AxisAnchors, FitAxis, FitMix, ModelTraffic
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.source import read_sources

CALLS = Path("calls.csv")
ROLE = "arn:aws:iam::111122223333:role/r"
OFFICE = [0] * 8 + [12] * 10 + [0] * 6


@cases(
    "by_hour, expected",
    case("office hours", OFFICE, (18, 8)),
    case("quiet at noon", [1] * 10 + [0] * 4 + [1] * 10, (10, 14)),
    case("the longer of two times", [0] * 3 + [1] * 8 + [0] * 5 + [1] * 8, (11, 16)),
    case("a quarter of the mean is not quiet", [1] * 12 + [0.25] * 12, None),
    case("too short", [0] * 2 + [1] * 22, None),
    case("the same all day", [1] * 24, None),
    case("no call", [0] * 24, None),
)
def test_the_longest_quiet_time_is_found(
    by_hour: list[float], expected: tuple[int, int] | None
) -> None:
    assert find_quiet_hours(np.array(by_hour, dtype=float)) == expected


def office_calls(begin_hour: int, per_hour: int = 12) -> DrawnCalls:
    """Calls in ten hours of the day, in UTC."""
    hours = np.arange(begin_hour, begin_hour + 10, 1 / per_hour) % 24
    at_s = np.sort(hours * 3600.0)
    ones = np.ones(len(at_s), dtype=np.int64)
    return DrawnCalls(at_s, ones, ones)


def build_office(num: int = 2, **changes: Any) -> tuple[FitMix, MixTraffic]:
    """Models that fill a machine each, with office hours in turn in Berlin and in Tokyo."""
    zones = (("Europe/Berlin", 7), ("Asia/Tokyo", 23))
    models, calls = [], {}
    for place in range(num):
        name, (zone, begin_hour) = f"m-{place}", zones[place % 2]
        calls[name] = office_calls(begin_hour)
        traffic = ModelTraffic(trace=CALLS, trace_model=name, time_zone=zone)
        usual: dict[str, Any] = {"memory_bytes": 10 * GIB, "traffic": traffic, "service": SERVICE}
        models.append(build_model(name, **usual | {"target_p99_s": 9.0, "max_s": 60.0} | changes))
    cost = {FitAxis.COST: AxisAnchors(unacceptable=100.0, target=0.1)}
    mix = build_mix(*models, hours=24.0, seeds=(1,), axes={**AXES, **cost})
    mix = replace(mix, machines=(replace(MACHINE, most=8),))
    return mix, MixTraffic(mix, {CALLS: calls})


def plan(option: Option, mix: FitMix, traffic: MixTraffic) -> OptionPlan:
    return plan_option(option, mix.models, mix, traffic)


def test_hours_are_of_the_models_time_zone() -> None:
    mix, traffic = build_office()
    found = list_quiet_hours(plan(Option.COMPONENTS, mix, traffic), mix, traffic)
    assert found == (
        QuietHours(begin_hour=18, end_hour=8, time_zone="Europe/Berlin"),
        QuietHours(begin_hour=18, end_hour=8, time_zone="Asia/Tokyo"),
    )


@cases(
    "option, hours, changes",
    case("instances of an endpoint each", Option.DEDICATED, 24.0, {}),
    case("less than a day", Option.COMPONENTS, 23.0, {}),
    case("two copies for safety", Option.COMPONENTS, 24.0, {"min_copies": 2}),
    case("zero all day", Option.COMPONENTS, 24.0, {"min_copies": 0}),
)
def test_other_models_have_no_schedule(
    option: Option, hours: float, changes: dict[str, int]
) -> None:
    mix, traffic = build_office(**changes)
    planned = plan(option, mix, traffic)
    assert list_quiet_hours(planned, replace(mix, hours=hours), traffic) == (None, None)


def test_schedules_that_save_are_chosen_and_deployed(tmp_path: Path) -> None:
    mix, traffic = build_office()
    (advice,) = advise(mix, traffic)
    found = advice.simulated[Option.COMPONENTS]
    assert found.schedule.startswith("With schedules: ")
    assert "m-0 18:00 to 08:00 Europe/Berlin, m-1 18:00 to 08:00 Asia/Tokyo" in found.schedule
    hours = [it.instance_h for it in found.trials]
    assert max(hours) < 36.0  # of 48 with a copy of each all day
    assert all(it.num_answered == it.num_calls for it in found.trials)
    document = tmp_path / "mix.yaml"
    document.write_text(yaml.safe_dump(dict(build_choice(mix, [advice]))))
    wanted = wanted_state(read_sources([document]), ROLE).resources
    actions = [it for it in wanted if it.kind.value == "scheduled action"]
    assert len(actions) == 4


def test_schedules_that_do_not_pay_are_named() -> None:
    mix, traffic = build_office(memory_bytes=GIB)
    (advice,) = advise(mix, traffic)
    found = advice.simulated[Option.COMPONENTS]
    assert found.schedule == "Schedules save nothing: one instance stays in any case."
    assert found.plan.quiet == ()
    mix, traffic = build_office()
    operations = {FitAxis.OPERATIONS: AxisAnchors(unacceptable=20.0, target=1.0, weight=100.0)}
    (advice,) = advise(replace(mix, axes={**mix.axes, **operations}), traffic)
    found = advice.simulated[Option.COMPONENTS]
    assert found.schedule.startswith("Schedules do not pay: ")
    assert found.plan.quiet == ()


def test_a_document_without_schedules_has_none() -> None:
    mix, traffic = build_office()
    document = build_document(plan(Option.COMPONENTS, mix, traffic), mix, "shop")
    components = document["endpoints"]["shop"]["Components"]
    assert not any("ScheduledActions" in it["Scaling"] for it in components.values())
