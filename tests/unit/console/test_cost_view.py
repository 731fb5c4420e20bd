"""The look-up of costs."""

import asyncio

from tests.unit.console.fake_platform import FakePlatform

from hostelry.console.view_table import look_at_costs


def test_the_reports_are_shown() -> None:
    port = FakePlatform({"/costs": {"reports": {}, "left_out": {}}})
    assert asyncio.run(look_at_costs(port, {}, 0.0)) == {"reports": {}, "left_out": {}}


def test_without_an_answer_the_reason_is_shown() -> None:
    found = asyncio.run(look_at_costs(FakePlatform(), {}, 0.0))
    assert found == {"missing": "home does not answer"}
