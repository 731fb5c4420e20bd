"""prices.toml: its settings, and the error for each invalid value."""

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cost.prices import Budget, PriceFileError, get_price_per_hour, parse_prices
from hostelry.domain.quota import CallPrices, ModelPrices
from hostelry.home.price_file import load_prices, read_example

USD = 'currency = "USD"\n'
OWNED = "[instances.own]\npurchase_price = 8760\nyears = 2\n"


def test_each_setting_is_read() -> None:
    prices = parse_prices(
        USD
        + '[electricity]\nprice_per_kwh = 0.5\n[instances."ml.m5.large"]\nprice_per_hour = 1\n'
        + OWNED
        + "watts = 1000\n[serverless]\nprice_per_gb_s = 2\nprice_per_provisioned_gb_s = 3\n"
        + "[transfer]\nprice_per_gb_in = 0\nprice_per_gb_out = 4\n"
        + "[storage]\nprice_per_gb_month = 5\n[steps]\nprice_per_step = 0.5\n"
        + "[calls]\nprice_per_million_prompt_tokens = 3\n[calls.models.base]\nprice_per_s = 4\n"
        + '[[budgets]]\nname = "all"\namount = 6\nperiod = "day"\n'
        + '[[budgets]]\nname = "b"\namount = 7\nperiod = "month"\ntag = "team=a=b"\n'
    )
    assert get_price_per_hour(prices, "ml.m5.large") == 1.0
    assert get_price_per_hour(prices, "own") == 0.5 + 0.5  # 8,760 over two years, and 1 kW
    assert get_price_per_hour(prices, "ml.other") is None
    assert (prices.serverless_per_gb_s, prices.provisioned_per_gb_s) == (2.0, 3.0)
    assert prices.per_step == 0.5
    assert (prices.per_gb_in, prices.per_gb_out, prices.storage_per_gb_month) == (0.0, 4.0, 5.0)
    assert prices.calls == CallPrices(
        currency="USD",
        default=ModelPrices(per_prompt_token=3e-6),
        models={"base": ModelPrices(per_s=4.0)},
    )
    assert prices.budgets == (
        Budget(name="all", amount=6.0, period="day"),
        Budget(name="b", amount=7.0, period="month", tag=("team", "a=b")),
    )


def test_a_missing_price_is_unknown() -> None:
    prices = parse_prices(USD)
    assert prices.per_gb_in is None
    assert prices.storage_per_gb_month is None
    assert prices.per_step is None
    assert get_price_per_hour(prices, "ml.m5.large") is None


def test_the_example_is_valid() -> None:
    prices = parse_prices(read_example())
    assert get_price_per_hour(prices, "ml.m5.large") == 0.115


@cases(
    "text, message",
    case("no TOML", "currency = ", "not valid TOML"),
    case("deep nesting", "x = " + "[" * 3000, "not valid TOML"),
    case("no currency", "", "currency is missing"),
    case("a currency's name", 'currency = "dollar"', 'currency is "dollar"'),
    case("a currency that is a number", "currency = 1", "currency is 1"),
    case("an unknown setting", USD + "[energy]\nx = 1", "the setting energy does not exist"),
    case("an unknown price", USD + "[storage]\nper_gb = 1", "storage.per_gb does not exist"),
    case("an unknown price of steps", USD + "[steps]\nprice = 1", "steps.price does not exist"),
    case("steps with a negative price", USD + "[steps]\nprice_per_step = -1", "step is -1. Give"),
    case("a call without a price", USD + "[calls]\nprice_per_s = 0", "calls has no price above 0"),
    case("a model without a price", USD + "[calls.models.a]\nx = 1", '"a".x does not exist'),
    case("a negative price", USD + "[storage]\nprice_per_gb_month = -1", "month is -1. Give"),
    case("NaN", USD + "[storage]\nprice_per_gb_month = nan", "price_per_gb_month is nan"),
    case("infinity", USD + "[storage]\nprice_per_gb_month = inf", "price_per_gb_month is inf"),
    case("a huge float", USD + "[storage]\nprice_per_gb_month = 1e300", "month is 1e+300"),
    case(
        "a huge integer",
        USD + f"[storage]\nprice_per_gb_month = 1{'0' * 3000}",
        "a whole number of 9966 bits",
    ),
    case("a text", USD + '[storage]\nprice_per_gb_month = "1"', 'month is "1". Give a number'),
    case("a truth", USD + "[storage]\nprice_per_gb_month = true", "month is true. Give a number"),
    case("no table", USD + "storage = 3", "storage is 3. Write it as a table"),
    case("no price", USD + "[instances.a]\n", 'instances."a" has no price'),
    case("no years", USD + "[instances.a]\npurchase_price = 1", "has no price"),
    case("no time", USD + "[instances.a]\npurchase_price = 1\nyears = 0", "years is 0"),
    case("two prices", USD + OWNED + "price_per_hour = 1", "price_per_hour with purchase_price"),
    case("watts alone", USD + OWNED + "watts = 5", "watts is 5, and electricity.price_per_kwh"),
    case("measured in words", USD + '[electricity]\nmeasured = "yes"', 'measured is "yes"'),
    case("measured without a price", USD + "[electricity]\nmeasured = true", "is missing. Add it"),
    case(
        "measured and declared energy",
        USD + "[electricity]\nmeasured = true\nprice_per_kwh = 1\n" + OWNED + "watts = 5",
        'instances."own".watts is set, and electricity.measured is true',
    ),
    case("an instance that is a number", USD + "[instances]\na = 1", 'instances."a" is 1'),
    case("an empty name", USD + '[instances.""]\nprice_per_hour = 1', "instance type is"),
    case("a control character", USD + '[instances."\\u0007"]\nprice_per_hour = 1', "printable"),
    case("budgets in a table", USD + "[budgets]\nx = 1", "below a [[budgets]]"),
    case("a budget without a name", USD + '[[budgets]]\namount = 1\nperiod = "day"', "missing"),
    case("a budget without an amount", USD + '[[budgets]]\nname = "a"', "has no amount"),
    case(
        "an unknown period",
        USD + '[[budgets]]\nname = "a"\namount = 1\nperiod = "year"',
        'the period "year"',
    ),
    case(
        "a tag without a value",
        USD + '[[budgets]]\nname = "a"\namount = 1\nperiod = "day"\ntag = "team"',
        'Write it as "KEY=VALUE"',
    ),
    case(
        "an endpoint and a tag",
        USD + '[[budgets]]\nname = "a"\namount = 1\nperiod = "day"\ntag = "a=b"\nendpoint = "c"',
        "at most one of them",
    ),
    case(
        "one name twice",
        USD + '[[budgets]]\nname = "a"\namount = 1\nperiod = "day"\n' * 2,
        '2 budgets have the name "a"',
    ),
)
def test_an_invalid_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(PriceFileError) as caught:
        parse_prices(text)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400


def test_too_many_instance_types_are_refused() -> None:
    rows = "".join(f"[instances.a{it}]\nprice_per_hour = 1\n" for it in range(10_001))
    with pytest.raises(PriceFileError, match="at most 10000"):
        parse_prices(USD + rows)


def test_files_are_read_with_their_names_in_errors(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "prices.toml"
    assert load_prices(path) is None
    path.write_bytes(b"\xff")
    with pytest.raises(TerminalError, match=r"prices\.toml is not UTF-8"):
        load_prices(path)
    path.write_bytes(b"#" * 1_048_577)
    with pytest.raises(TerminalError, match="more than 1048576 bytes"):
        load_prices(path)
    path.write_text("currency = 3")
    with pytest.raises(TerminalError, match=r"prices\.toml: currency is 3"):
        load_prices(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(TerminalError, match="cannot be read"):
        load_prices(path)
