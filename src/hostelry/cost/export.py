"""Rows of CSV files: a report, and charges in the columns of FOCUS 1.2. Pure.

Source: FinOps Open Cost and Usage Specification, version 1.2. All its mandatory columns are here.
A null is an empty field. The cost columns must not be null, so that charges of an unknown price
have no row.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from hostelry.cost.attribution import HOUR_S, UNITS, Charge, ChargeKind
from hostelry.cost.budget import find_period_start
from hostelry.cost.report import Amount, CostReport
from hostelry.cost.usage import Calls

Row = Sequence[str]
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
REPORT_COLUMNS = (
    "Name", "IsIdle", "Amount", "IsComplete", "Currency", "Requests", "ServiceSeconds", "BytesIn",
    "BytesOut", "TokensIn", "TokensOut", "Per1000Calls", "Per1000Tokens",
    "InstanceHours",
)  # fmt: skip
FOCUS_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency",
    "ChargePeriodEnd", "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost",
    "ContractedUnitPrice", "EffectiveCost", "InvoiceIssuerName", "ListCost", "ListUnitPrice",
    "PricingCategory", "PricingQuantity", "PricingUnit", "ProviderName", "PublisherName",
    "RegionId", "ResourceId", "ResourceName", "ResourceType", "ServiceCategory", "ServiceName",
    "SkuId", "SkuPriceId", "x_Component", "x_Adapter", "x_TargetModel", "x_Idle",
)  # fmt: skip
CATEGORIES: Mapping[ChargeKind, str] = {
    ChargeKind.INSTANCE: "AI and Machine Learning",
    ChargeKind.ENERGY: "AI and Machine Learning",
    ChargeKind.SERVERLESS: "AI and Machine Learning",
    ChargeKind.PROVISIONED: "AI and Machine Learning",
    ChargeKind.BYTES_IN: "Networking",
    ChargeKind.BYTES_OUT: "Networking",
    ChargeKind.STORAGE: "Storage",
    ChargeKind.STEP: "Management and Governance",
}
OWN_NAME = "Hostelry"


def guard_cell(text: str) -> str:
    """A text that no spreadsheet takes for a formula. Clients choose names of models."""
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def list_report_rows(report: CostReport, currency: str) -> Iterator[Row]:
    """The header and the rows of a report. An unknown amount is empty."""
    yield REPORT_COLUMNS
    for row in report.rows:
        counts = [""] * 6 if row.calls is None else [_write(it) for it in _list_counts(row.calls)]
        unit_costs = (_write(row.per_1000_calls), _write(row.per_1000_tokens))
        yield (
            guard_cell(row.name),
            "false",
            *_write_amount(row.amount),
            currency,
            *counts,
            *unit_costs,
            _write(row.amount.instance_h),
        )
    for idle in report.idle:
        name = f"{idle.component or idle.endpoint}: {idle.reason.value}"
        hours = _write(idle.amount.instance_h)
        yield (guard_cell(name), "true", *_write_amount(idle.amount), currency, *[""] * 8, hours)


def _list_counts(calls: Calls) -> Iterator[float]:
    yield from (calls.requests, calls.service_s, calls.bytes_in, calls.bytes_out)
    yield from (calls.tokens_in, calls.tokens_out)


def list_focus_rows(
    charges: Iterable[Charge], currency: str, account: str, region: str
) -> Iterator[Row]:
    """The header, and a row per charge of a known price."""
    yield FOCUS_COLUMNS
    for charge in charges:
        if charge.amount is not None:
            found = _build_focus_row(charge, currency, account, region)
            yield tuple(guard_cell(found.get(name, "")) for name in FOCUS_COLUMNS)


def _build_focus_row(charge: Charge, currency: str, account: str, region: str) -> Mapping[str, str]:
    """The columns that are not null."""
    cost, price, unit = _write(charge.amount), _write(charge.unit_price), UNITS[charge.kind]
    month = find_period_start("month", charge.at)
    next_month = find_period_start("month", month + MOST_MONTH_S)
    target = charge.target
    sku = _name_sku(charge)
    is_adapter = target is not None and target.base is not None
    found = {
        "BillingAccountId": account,
        "BillingCurrency": currency,
        "BillingPeriodStart": _write_time(month),
        "BillingPeriodEnd": _write_time(next_month),
        "ChargeCategory": "Usage",
        "ChargeDescription": _describe(charge),
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _write_time(charge.at),
        "ChargePeriodEnd": _write_time(charge.at + HOUR_S),
        "InvoiceIssuerName": OWN_NAME,
        "PricingCategory": "Standard",
        "ProviderName": OWN_NAME,
        "PublisherName": OWN_NAME,
        "RegionId": region,
        "ServiceCategory": CATEGORIES[charge.kind],
        "ServiceName": OWN_NAME,
        "SkuId": sku,
        "SkuPriceId": sku,
        "x_Idle": "" if charge.idle is None else charge.idle.value,
        "x_TargetModel": charge.model or "",
    }
    found |= dict.fromkeys(("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"), cost)
    found |= dict.fromkeys(("ListUnitPrice", "ContractedUnitPrice"), price)
    found |= dict.fromkeys(("PricingQuantity", "ConsumedQuantity"), _write(charge.quantity))
    found |= dict.fromkeys(("PricingUnit", "ConsumedUnit"), unit)
    if target is not None:
        found["ResourceId"] = target.component or target.endpoint
        found["ResourceName"] = found["ResourceId"]
        found["ResourceType"] = "Endpoint" if target.component is None else "Inference component"
        found["x_Component"] = target.owner or ""
        found["x_Adapter"] = (target.component or "") if is_adapter else ""
    else:
        found["ResourceId"] = found["ResourceName"] = "object-store"
        found["ResourceType"] = "Object store"
    return found


MOST_MONTH_S = 31 * 86_400


def _describe(charge: Charge) -> str:
    what = _name_sku(charge)
    return what if charge.idle is None else f"{what}, idle: {charge.idle.value}"


def _name_sku(charge: Charge) -> str:
    is_instance = charge.kind is ChargeKind.INSTANCE
    return charge.instance_type or "" if is_instance else charge.kind.value


def _write_amount(amount: Amount) -> tuple[str, str]:
    return _write(amount.value), "true" if amount.is_complete else "false"


def _write(number: float | None) -> str:
    """A decimal number without an exponent. Empty for None."""
    if number is None:
        return ""
    return f"{number:.12f}".rstrip("0").rstrip(".") or "0"


def _write_time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
