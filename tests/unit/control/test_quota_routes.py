"""Routes of quotas: records that are audited, published, and shown with their use."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.core import Metric
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, FailingFiles
from tests.unit.audit.samples import OWNER as AUDITED
from tests.unit.quotas.quota_sample import ACCOUNT

from hostelry.audit.rows import TrailMarks
from hostelry.audit.trail import AuditTrail
from hostelry.base.clock import ManualClock
from hostelry.base.json import decode
from hostelry.control.quota_routes import QuotaRoutes
from hostelry.cost.prices import PriceList, parse_prices
from hostelry.domain.quota import Quota, QuotaDocument, QuotaReport, ReportedUse
from hostelry.domain.scope import Scope
from hostelry.store.memory import MemoryStore
from hostelry.store.records import open_state
from hostelry.store.sqlite import SqliteFile

OWNER = Scope(ACCOUNT, "us-west-2")
PRICES = parse_prices('currency = "USD"\n[calls]\nprice_per_s = 0.5\n')


class Control:
    """The routes over an empty store."""

    def __init__(self, folder: Path) -> None:
        self.prices: PriceList | None = PRICES
        self.database = SqliteFile(folder / "state.db")
        marks = TrailMarks(self.database, KEY)
        files = FailingFiles(folder / "audit", KEY)
        self.log = AuditTrail(files, marks, KEY, AUDITED, ManualClock())
        self.state = open_state(MemoryStore())
        self.routes = QuotaRoutes(OWNER, self.state, lambda: self.prices, self.log, ManualClock())
        self._app = Starlette(routes=list(self.routes.routes()))

    def close(self) -> None:
        self.log.close()
        self.database.close()

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
            return await client.request(method, f"/internal/quotas{path}", json=body)

    async def set(self, **fields: Any) -> httpx.Response:
        body = {"id": "", "name": "q", "account": ACCOUNT, "created_at": 0.0, **fields}
        return await self.ask("POST", "", {"who": "user ada", "quota": body})

    async def document(self, have: str = "") -> QuotaDocument:
        return decode((await self.ask("GET", f"?have={have}")).content, QuotaDocument)


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Control]:
    built = Control(tmp_path)
    yield built
    built.close()


async def test_a_quota_is_set_published_changed_and_deleted(control: Control) -> None:
    await control.routes.publish()
    empty = await control.document()
    polling = asyncio.create_task(control.document(empty.version))
    await control.set(requests_per_minute=5)
    (first,) = (await polling).quotas
    await control.set(requests_per_minute=9, endpoint="chat")
    (second,) = (await control.document()).quotas
    assert (second.id, second.created_at) == (first.id, first.created_at), "it keeps its use"
    assert (second.requests_per_minute, second.endpoint) == (9, "chat")
    name = {"who": "user ada", "account": ACCOUNT, "name": "q"}
    assert (await control.ask("POST", "/delete", name)).status_code == 200
    assert (await control.document()).quotas == ()
    again = await control.ask("POST", "/delete", name)
    assert (again.status_code, "there is no quota q" in again.json()["error"]) == (404, True)
    acts = [(it.who, it.act, it.target) for it in control.log.newest(9)]
    assert acts == [
        ("user ada", act, "quota q") for act in ("delete-quota", "set-quota", "set-quota")
    ]


@cases(
    "fields, status, words",
    case("no limit", {}, 400, "no quota: it has no limit"),
    case("a setting that does not exist", {"concurrency": 1, "bursts": 2}, 400, "bursts"),
    case("an account that does not exist", {"account": "999"}, 400, "there is no account 999"),
    case("each account", {"account": "*", "concurrency": 1}, 200, ""),
    case("an endpoint to come", {"endpoint": "x", "concurrency": 1}, 200, "no endpoint x yet"),
)
async def test_a_quota_to_set_has(
    control: Control, fields: dict[str, Any], status: int, words: str
) -> None:
    given = {"concurrency": 1, **fields} if "account" in fields else fields
    answer = await control.set(**given)
    assert answer.status_code == status
    assert words in answer.text


async def test_a_budget_of_money_needs_prices(control: Control) -> None:
    control.prices = None
    refused = await control.set(cost_per_day=5.0)
    assert refused.status_code == 400
    assert "add the table [calls] to prices.toml" in refused.json()["error"]
    control.prices = PRICES
    assert (await control.set(cost_per_day=5.0)).status_code == 200
    assert (await control.document()).prices.default.per_s == 0.5


async def test_the_use_that_gateways_report_is_shown_and_measured(control: Control) -> None:
    await control.set(principal="*", requests_per_minute=5, cost_per_day=2.0)
    await control.set(name="other", concurrency=1)
    limited = next(it for it in (await control.document()).quotas if it.name == "q")
    for host in ("h1", "h2"):
        report = QuotaReport(host=host, uses=(use(limited, "ana"), use(limited, "ben")))
        answer = await control.ask("POST", "/use", msgspec.to_builtins(report))
        assert all(it["shares"][0] >= 0 for it in answer.json()["grants"])
    shown = (await control.ask("GET", "/use?name=q")).json()
    assert (shown["currency"], shown["hosts"]) == ("USD", 2)
    (one,) = shown["quotas"]
    assert [it["names"] for it in one["counts"]] == [{"principal": "ana"}, {"principal": "ben"}]
    limits = one["counts"][0]["limits"]
    assert limits["requests_per_minute"] == {
        "limit": 5,
        "used": 6,
        "held": 0,
        "refused": 4,
        "warned": 2,
        "is_reached": True,
    }
    assert (limits["cost_per_day"]["used"], limits["cost_per_day"]["held"]) == (0.5, 0.25)
    assert [it["name"] for it in control.routes.list_reached()["quotas"]] == ["q"]
    samples = {
        (family.name, sample.labels["quota"], sample.labels["limit"]): sample.value
        for family in control.routes.collect()
        for sample in named_samples(family)
    }
    assert samples["hostelry_quota_refused", "q", "requests_per_minute"] == 8
    assert samples["hostelry_quota_used", "q", "cost_per_day"] == pytest.approx(1.5)
    assert samples["hostelry_quota_limit", "other", "concurrency"] == 1


def use(limited: Quota, who: str) -> ReportedUse:
    """Of one host: 3 requests, 0.25 of the currency, and half of that in flight."""
    return ReportedUse(
        key=(who.encode() * 8)[:16].hex(),
        quota_id=limited.id,
        values=(who,),
        used=(3, 0, 0, 0, 0, 250_000_000),
        held=(0, 0, 0, 0, 0, 125_000_000),
        refused=(2, 0, 0, 0, 0, 0),
        warned=(1, 0, 0, 0, 0, 0),
        shares=(-1,) * 6,
    )


def named_samples(family: Metric) -> list[Any]:
    """Samples without the times at which counters were made."""
    return [it for it in family.samples if not it.name.endswith("_created")]


async def test_a_report_that_is_not_valid_is_refused(control: Control) -> None:
    assert (await control.ask("POST", "/use", {"uses": []})).status_code == 400
