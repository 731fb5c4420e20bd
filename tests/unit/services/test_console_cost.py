"""The console's costs: the same numbers as the command's, and the reason if they are unknown."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.console.platform import PlatformError
from hostelry.cost.document import build_document
from hostelry.cost.period import find_period
from hostelry.cost.prices import parse_prices
from hostelry.cost.usage import gather_hours
from hostelry.cost.view import CostView, read_sums
from hostelry.services.console_cost import MAX_ROWS, SHOWN, ask_costs

NOW = 3600.0 * 500_000 + 1800
HOUR = 3600.0 * 500_000
PRICES = 'currency = "EUR"\n[instances.big]\nprice_per_hour = 8\n'
TOTAL = {"amount": 4.0, "is_complete": False, "instance_h": 1.0}
ENDPOINT = {"EndpointName": "e", "VariantName": "v"}


def usage(num_adapters: int = 1) -> dict[str, Any]:
    """An hour of an endpoint of a known price, whose adapters had a request each, and another."""
    big, other = {**ENDPOINT, "InstanceType": "big"}, {**ENDPOINT, "InstanceType": "other"}
    rows = [
        ("UsageInstanceTime", big, 1800.0),
        ("UsageReservedTime", {**big, "InferenceComponentName": "base"}, 900.0),
        ("UsageInstanceTime", {**other, "EndpointName": "f"}, 1800.0),
        ("UsageReservedTime", {**other, "EndpointName": "f"}, 1800.0),
        ("UsageSteps", {"Operation": "CreateModel"}, 1.0),
    ]
    for number in range(num_adapters):
        own = {
            **ENDPOINT,
            "InferenceComponentName": f"a-{number:04}",
            "BaseInferenceComponentName": "base",
        }
        rows += [("UsageRequests", own, 1.0), ("UsageServiceTime", own, 0.5)]
        rows += [
            ("UsageRequests", {**own, "Tenant": "t"}, 1.0),
            ("UsageServiceTime", {**own, "Tenant": "t"}, 0.5),
        ]
    return {
        "sums": [
            {"metric": name, "dimensions": dimensions, "hours": [[HOUR, value]]}
            for name, dimensions, value in rows
        ],
        "tags": {},
    }


def ask(path: Path, answer: dict[str, Any]) -> dict[str, Any]:
    async def answer_route(process: str, route: str, query: Mapping[str, str]) -> dict[str, Any]:
        assert (process, route) == ("control", "/internal/cost-usage")
        assert float(query["from"]) <= HOUR < NOW <= float(query["to"])
        return answer

    return asyncio.run(ask_costs(answer_route, path, NOW))


def test_the_reports_are_those_of_the_command(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    found = ask(path, usage())["reports"]
    prices, period = parse_prices(PRICES), find_period(None, None, "24h", NOW)
    view = CostView(prices, gather_hours(read_sums(usage())), period, NOW)
    for by in SHOWN:
        assert found[by] == build_document(view.build(None, by), [], "EUR", by)
    assert [(it["name"], it["amount"]) for it in found["adapter"]["rows"]] == [
        ("a-0000", 2.0),
        ("f", None),
    ]
    assert [(it["name"], it["amount"]) for it in found["tenant"]["rows"]] == [
        ("t", 2.0),
        ("(no tenant)", None),
    ]
    assert [(it["endpoint"], it["amount"]) for it in found["endpoint"]["idle"]] == [("e", 2.0)]
    assert found["endpoint"]["missing_prices"] == ['instances."other"']
    assert found["endpoint"]["total"] == TOTAL


def test_ten_times_the_shown_rows_are_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    found = ask(path, usage(num_adapters=10 * MAX_ROWS))
    assert len(found["reports"]["adapter"]["rows"]) == MAX_ROWS
    assert found["left_out"]["adapter"]["rows"] == 9 * MAX_ROWS + 1
    assert found["left_out"]["endpoint"]["rows"] == 0
    assert found["reports"]["adapter"]["total"] == TOTAL


@cases(
    "text, message",
    case("no file", None, "There are no prices: write "),
    case("an invalid file", "currency = 1", "prices.toml: currency is 1"),
)
def test_without_prices_the_remedy_is_named(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "prices.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(PlatformError, match=message):
        ask(path, usage())
