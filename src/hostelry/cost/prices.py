"""The operator's prices: prices.toml as values. Pure.

    currency = "USD"

    [electricity]
    price_per_kwh = 0.30
    measured = false                # true: the energy that this machine measures, not watts

    [instances."ml.m5.xlarge"]      # rented
    price_per_hour = 0.269

    [instances."ml.g5.2xlarge"]     # owned: spread over every hour of its years
    purchase_price = 9000
    years = 4
    watts = 350                     # needs electricity.price_per_kwh

    [serverless]
    price_per_gb_s = 0.00002
    price_per_provisioned_gb_s = 0.00001

    [transfer]
    price_per_gb_in = 0.0
    price_per_gb_out = 0.05

    [storage]
    price_per_gb_month = 0.023

    [steps]                         # calls and acts that deploy or change something
    price_per_step = 0.10           # without it steps are only counted

    [calls]                         # the price of a call, for quotas with cost_per_day
    price_per_million_prompt_tokens = 0.15
    price_per_million_generated_tokens = 0.60
    price_per_s = 0.0001            # time on a copy

    [calls.models."chat-base"]      # instead, for an endpoint, component or adapter
    price_per_million_prompt_tokens = 1.0

    [[budgets]]
    name = "chat"
    amount = 500
    period = "month"                # or "week", "day", in UTC
    endpoint = "chat"               # or tag = "team=search", or neither for everything

A price that is missing is unknown. It is never taken as zero. There are two exceptions. Steps
without a price are counted, and parts of a call without a price in [calls] are free.
"""

import math
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.domain.quota import CallPrices, ModelPrices

LARGEST = 1e12
MAX_INSTANCE_TYPES = 10_000
MAX_BUDGETS = 1_000
MAX_MODELS = 10_000
MILLION = 1_000_000
MAX_NAME_CHARACTERS = 256
HOURS_PER_YEAR = 8_760
WATTS_PER_KW = 1_000
PERIODS = ("day", "week", "month")
CURRENCY_CHARACTERS = 3
MAX_SHOWN_CHARACTERS = 80


class PriceFileError(TerminalError):
    """The price file is invalid. The message names the setting, its value and the remedy."""


class InstancePrice(msgspec.Struct, frozen=True, kw_only=True):
    """Prices of an instance per hour: the machine, and the electricity that it draws."""

    machine_per_hour: float
    energy_per_hour: float = 0.0

    @property
    def per_hour(self) -> float:
        """The price of an hour."""
        return self.machine_per_hour + self.energy_per_hour


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """An amount per calendar period. It covers an endpoint, a tag, or everything."""

    name: str
    amount: float
    period: str
    endpoint: str | None = None
    tag: tuple[str, str] | None = None


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """Prices. None stands for an unknown price.

    With `per_measured_kwh` energy is charged as measured, and no instance has a price for it.
    """

    currency: str
    instances: Mapping[str, InstancePrice] = msgspec.field(default_factory=dict)
    per_measured_kwh: float | None = None
    serverless_per_gb_s: float | None = None
    provisioned_per_gb_s: float | None = None
    per_gb_in: float | None = None
    per_gb_out: float | None = None
    storage_per_gb_month: float | None = None
    per_step: float | None = None
    calls: CallPrices | None = None
    budgets: tuple[Budget, ...] = ()


NO_PRICES = PriceList(currency="")


def get_price_per_hour(prices: PriceList, instance_type: str) -> float | None:
    """The price of an hour of an instance type, or None if the price is unknown."""
    price = prices.instances.get(instance_type)
    return None if price is None else price.per_hour


def parse_prices(text: str) -> PriceList:
    """Parse the text of prices.toml. Raises PriceFileError."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PriceFileError(f"it is not valid TOML: {error}. Correct this line") from error
    known = (
        "currency", "electricity", "instances", "serverless", "transfer", "storage", "steps",
        "calls", "budgets",
    )  # fmt: skip
    _refuse_unknown(document, "", known)
    per_kwh, is_measured = _parse_electricity(document)
    serverless = _parse_numbers(
        document, "serverless", ("price_per_gb_s", "price_per_provisioned_gb_s")
    )
    transfer = _parse_numbers(document, "transfer", ("price_per_gb_in", "price_per_gb_out"))
    storage = _parse_numbers(document, "storage", ("price_per_gb_month",))
    return PriceList(
        currency=_parse_currency(document),
        instances=_parse_instances(document, per_kwh, is_measured),
        per_measured_kwh=per_kwh if is_measured else None,
        serverless_per_gb_s=serverless["price_per_gb_s"],
        provisioned_per_gb_s=serverless["price_per_provisioned_gb_s"],
        per_gb_in=transfer["price_per_gb_in"],
        per_gb_out=transfer["price_per_gb_out"],
        storage_per_gb_month=storage["price_per_gb_month"],
        per_step=_parse_numbers(document, "steps", ("price_per_step",))["price_per_step"],
        calls=_parse_calls(document),
        budgets=_parse_budgets(document),
    )


def _parse_currency(document: Mapping[str, Any]) -> str:
    if "currency" not in document:
        raise PriceFileError('currency is missing. Add for example currency = "USD"')
    found = document["currency"]
    is_code = isinstance(found, str) and len(found) == CURRENCY_CHARACTERS and found.isascii()
    if not (is_code and found.isalpha() and found.isupper()):
        raise PriceFileError(
            f"currency is {_show(found)}. Give its ISO 4217 code, three capital letters such as"
            ' "USD"'
        )
    return str(found)


def _parse_electricity(document: Mapping[str, Any]) -> tuple[float | None, bool]:
    """The price of a kWh, and whether energy is measured."""
    table = _get_table(document, "electricity", "electricity")
    _refuse_unknown(table, "electricity", ("price_per_kwh", "measured"))
    per_kwh = _parse_number(table, "electricity", "price_per_kwh")
    is_measured = table.get("measured", False)
    if not isinstance(is_measured, bool):
        raise PriceFileError(f"electricity.measured is {_show(is_measured)}. Give true or false")
    if is_measured and per_kwh is None:
        raise PriceFileError(
            "electricity.measured is true, and electricity.price_per_kwh is missing. Add it"
        )
    return per_kwh, is_measured


def _parse_instances(
    document: Mapping[str, Any], per_kwh: float | None, is_measured: bool
) -> Mapping[str, InstancePrice]:
    table = _get_table(document, "instances", "instances")
    if len(table) > MAX_INSTANCE_TYPES:
        raise PriceFileError(
            f"instances has {len(table)} instance types. Give at most {MAX_INSTANCE_TYPES}"
        )
    if is_measured:
        for name, row in table.items():
            if isinstance(row, dict) and "watts" in row:
                raise PriceFileError(
                    f"instances.{_show(name)}.watts is set, and electricity.measured is true."
                    " Remove one of them"
                )
    return {name: _parse_instance(name, table, per_kwh) for name in table}


def _parse_instance(name: str, table: Mapping[str, Any], per_kwh: float | None) -> InstancePrice:
    _check_name(name, "the name of an instance type")
    title = f"instances.{_show(name)}"
    fields = ("price_per_hour", "purchase_price", "years", "watts")
    row = _get_table(table, name, title)
    _refuse_unknown(row, title, fields)
    rent, purchase, years, watts = (_parse_number(row, title, it) for it in fields)
    if rent is None and (purchase is None or years is None):
        raise PriceFileError(
            f"{title} has no price. Give price_per_hour, or purchase_price and years"
        )
    if rent is not None and (purchase is not None or years is not None):
        raise PriceFileError(
            f"{title} has price_per_hour with purchase_price or years. Give either"
            " price_per_hour, or purchase_price and years"
        )
    if years is not None and years < 1 / HOURS_PER_YEAR:
        raise PriceFileError(f"{title}.years is {years:g}. Give a number above 0")
    if watts is not None and per_kwh is None:
        raise PriceFileError(
            f"{title}.watts is {watts:g}, and electricity.price_per_kwh is missing. Add it, or"
            " remove watts"
        )
    if purchase is not None and years is not None:
        rent = purchase / (years * HOURS_PER_YEAR)
    energy = (watts or 0.0) / WATTS_PER_KW * (per_kwh or 0.0)
    return InstancePrice(machine_per_hour=rent or 0.0, energy_per_hour=energy)


def _parse_calls(document: Mapping[str, Any]) -> CallPrices | None:
    if "calls" not in document:
        return None
    table = dict(_get_table(document, "calls", "calls"))
    models = _get_table(table, "models", "calls.models")
    table.pop("models", None)
    if len(models) > MAX_MODELS:
        raise PriceFileError(f"calls.models has {len(models)} models. Give at most {MAX_MODELS}")
    for name in models:
        _check_name(name, "the name of a model in calls.models")
    return CallPrices(
        currency=_parse_currency(document),
        default=_parse_call(table, "calls") if table or not models else ModelPrices(),
        models={
            name: _parse_call(_get_table(models, name, title), title)
            for name, title in ((name, f"calls.models.{_show(name)}") for name in models)
        },
    )


def _parse_call(table: Mapping[str, Any], title: str) -> ModelPrices:
    """The prices of a call. Of a call, a missing price is 0."""
    fields = (
        "price_per_million_prompt_tokens",
        "price_per_million_generated_tokens",
        "price_per_s",
    )
    _refuse_unknown(table, title, fields)
    prompt, generated, per_s = (_parse_number(table, title, it) or 0.0 for it in fields)
    if not (prompt or generated or per_s):
        raise PriceFileError(f"{title} has no price above 0. Give one of {', '.join(fields)}")
    return ModelPrices(
        per_prompt_token=prompt / MILLION, per_generated_token=generated / MILLION, per_s=per_s
    )


def _parse_budgets(document: Mapping[str, Any]) -> tuple[Budget, ...]:
    rows = document.get("budgets", [])
    if not isinstance(rows, list) or not all(isinstance(it, dict) for it in rows):
        raise PriceFileError(f"budgets is {_show(rows)}. Write each budget below a [[budgets]]")
    if len(rows) > MAX_BUDGETS:
        raise PriceFileError(f"there are {len(rows)} budgets. Give at most {MAX_BUDGETS}")
    found = tuple(_parse_budget(row, number) for number, row in enumerate(rows, 1))
    for name, count in Counter(it.name for it in found).items():
        if count > 1:
            raise PriceFileError(f"{count} budgets have the name {_show(name)}. Rename them")
    return found


def _parse_budget(row: Mapping[str, Any], number: int) -> Budget:
    title = f"budget {number}"
    _refuse_unknown(row, title, ("name", "amount", "period", "endpoint", "tag"))
    amount = _parse_number(row, title, "amount")
    if amount is None:
        raise PriceFileError(f"{title} has no amount. Give amount, a number of the currency")
    period = row.get("period")
    if period not in PERIODS:
        raise PriceFileError(
            f"{title} has the period {_show(period)}. Give one of {', '.join(PERIODS)}"
        )
    endpoint, tag = row.get("endpoint"), row.get("tag")
    if endpoint is not None and tag is not None:
        raise PriceFileError(f"{title} has an endpoint and a tag. Give at most one of them")
    return Budget(
        name=_check_name(row.get("name"), f"the name of {title}"),
        amount=amount,
        period=str(period),
        endpoint=None if endpoint is None else _check_name(endpoint, f"the endpoint of {title}"),
        tag=None if tag is None else _parse_tag(tag, title),
    )


def _parse_tag(tag: object, title: str) -> tuple[str, str]:
    key, equals, value = _check_name(tag, f"the tag of {title}").partition("=")
    if not key or not equals:
        raise PriceFileError(f'{title} has the tag {_show(tag)}. Write it as "KEY=VALUE"')
    return key, value


def _parse_numbers(
    document: Mapping[str, Any], name: str, fields: tuple[str, ...]
) -> Mapping[str, float | None]:
    table = _get_table(document, name, name)
    _refuse_unknown(table, name, fields)
    return {it: _parse_number(table, name, it) for it in fields}


def _parse_number(table: Mapping[str, Any], title: str, name: str) -> float | None:
    if name not in table:
        return None
    found = table[name]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise PriceFileError(f"{title}.{name} is {_show(found)}. Give a number without quotes")
    # A whole number of any size is compared before it becomes a float.
    if (isinstance(found, float) and not math.isfinite(found)) or not 0 <= found <= LARGEST:
        raise PriceFileError(
            f"{title}.{name} is {_show(found)}. Give a number from 0 to {LARGEST:.0f}"
        )
    return float(found)


def _get_table(parent: Mapping[str, Any], name: str, title: str) -> Mapping[str, Any]:
    found = parent.get(name, {})
    if not isinstance(found, dict):
        raise PriceFileError(f"{title} is {_show(found)}. Write it as a table, [{title}]")
    return found


def _refuse_unknown(table: Mapping[str, Any], title: str, known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            place = f"{title}.{name}" if title else name
            raise PriceFileError(
                f"the setting {_cut(place)} does not exist. Settings here: {', '.join(known)}"
            )


def _check_name(name: object, title: str) -> str:
    is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARACTERS
    if not (is_name and str(name).isprintable()):
        raise PriceFileError(
            f"{title} is {_show(name)}. Give 1 to {MAX_NAME_CHARACTERS} printable characters"
        )
    return str(name)


def _show(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "missing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"a whole number of {value.bit_length()} bits"
    return _cut(f'"{value}"' if isinstance(value, str) else str(value))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}..."
