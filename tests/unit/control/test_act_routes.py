"""Routes of acts decide, audit and then record an act. Other requests are refused."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from tests.cases import case, cases
from tests.unit.audit.samples import KEY, OWNER, FailingFiles
from tests.unit.reconcile.samples import (
    SCOPE,
    Town,
    component,
    deployment,
    endpoint,
    get_shape,
    variant,
)

from hostelry.audit.acts import AuditEntry
from hostelry.audit.rows import TrailMarks
from hostelry.audit.trail import AuditTrail
from hostelry.control.act_routes import ActDeps, OperatorActRoutes
from hostelry.domain.endpoint import EndpointStatus
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key, Record, StoreUnavailable
from hostelry.store.sqlite import SqliteFile

HERE = {"account": SCOPE.account, "region": SCOPE.region, "who": "user ada"}


class FailingStore(MemoryStore):
    """A store whose writes raise `fault` while it is set."""

    fault: Exception | None = None

    def put(self, key: Key, body: bytes, *, expect: int | None) -> Record:
        if self.fault is not None:
            raise self.fault
        return super().put(key, body, expect=expect)


class Acts:
    """The routes over a town with an endpoint of one component with two copies."""

    def __init__(self, folder: Path) -> None:
        self.store = FailingStore()
        self.town = Town(store=self.store)
        self.town.add(endpoint(deployment(variant())), component(copies=2))
        self.town.settle()
        self.files = FailingFiles(folder / "audit", KEY)
        self.database = SqliteFile(folder / "state.db")
        marks = TrailMarks(self.database, KEY)
        self.log = AuditTrail(self.files, marks, KEY, OWNER, self.town.clock)
        self.noted: list[tuple[str, str]] = []

    def post(self, act: str, **body: object) -> httpx.Response:
        return self.send(act, json={**HERE, **body})

    def send(self, act: str, **request: object) -> httpx.Response:
        deps = ActDeps(
            state=self.town.state,
            facts=self.town.facts,
            audit=self.log,
            clock=self.town.clock,
            get_shape=get_shape,
            note_act=lambda _, endpoint, act: self.noted.append((endpoint, act)),
        )

        async def ask() -> httpx.Response:
            app = Starlette(routes=list(OperatorActRoutes(deps).routes()))
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
                url = f"/internal/acts/{act}"
                return await client.post(url, **request)  # type: ignore[arg-type] # by name

        return asyncio.run(ask())

    def audited(self) -> list[AuditEntry]:
        return self.log.newest(10)

    @property
    def copies(self) -> list[str]:
        return sorted(self.town.running_copies())

    @property
    def instance(self) -> str:
        return self.town.instance_records()[0].id


@pytest.fixture
def acts(tmp_path: Path) -> Iterator[Acts]:
    built = Acts(tmp_path)
    yield built
    built.log.close()
    built.database.close()
    built.town.close()


def test_a_restart_is_audited_and_carried_out(acts: Acts) -> None:
    before = acts.copies
    answer = acts.post("restart", component="base")
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["target"], shown["endpoint"]) == ("component base", "ep")
    assert (shown["already"], shown["dry_run"]) == (False, False)
    assert [(it["copy"], it["way"]) for it in shown["steps"]] == [(it, "beside") for it in before]
    assert "a new copy comes up on" in shown["steps"][0]["text"]
    (entry,) = acts.audited()
    assert (entry.who, entry.act, entry.target) == ("user ada", "restart", "component base")
    assert (entry.outcome, entry.endpoint, entry.at) == ("accepted", "ep", acts.town.clock.now())
    assert (entry.account, entry.region) == (SCOPE.account, SCOPE.region)
    again = acts.post("restart", component="base").json()
    assert again["already"]
    assert acts.noted == [("ep", "restart")], "an act that changes nothing is not a step"
    acts.town.settle()
    assert not set(before) & set(acts.copies)


@cases("act, asked", case("a restart", "restart", {"endpoint": "ep"}), case("a drain", "drain", {}))
def test_a_dry_run_changes_nothing_and_is_not_audited(
    acts: Acts, act: str, asked: dict[str, str]
) -> None:
    revision = acts.store.revision()
    asked = asked or {"instance": acts.instance}
    answer = acts.post(act, **asked, dry_run=True)
    assert answer.status_code == 200
    assert (len(answer.json()["steps"]), answer.json()["dry_run"]) == (2, True)
    assert acts.store.revision() == revision
    assert acts.audited() == []
    assert acts.noted == []


def test_a_drain_is_cancelled(acts: Acts) -> None:
    acts.town.switches.slow = True
    drained = acts.instance
    assert acts.post("drain", instance=drained).json()["target"] == f"instance {drained}"
    assert acts.post("drain", instance=drained).json()["already"]
    acts.town.turn(2)
    assert len(acts.town.instance_records()) == 2
    assert acts.post("undrain", instance=drained).status_code == 200
    acts.town.turn(5)
    assert [it.id for it in acts.town.instance_records()] == [drained]
    assert [it.act for it in acts.audited()] == ["undrain", "drain", "drain"]
    refusal = acts.post("undrain", instance=drained)
    assert (refusal.status_code, refusal.json()) == (
        409,
        {"error": f"Instance {drained} is not draining."},
    )
    assert acts.audited()[0].outcome == f"refused: Instance {drained} is not draining."


@cases(
    "act, asked, status, why",
    case("no such copy", "restart", {"copy": "c-9"}, 404, "no copy c-9"),
    case("no name", "restart", {"component": "x"}, 404, "no inference component x"),
    case("no such endpoint", "restart", {"endpoint": "x"}, 404, "no endpoint x"),
    case("no such instance", "drain", {"instance": "i-9"}, 404, "no instance i-9"),
    case("elsewhere", "restart", {"component": "base", "endpoint": "x"}, 404, "on endpoint ep"),
    case("nothing named", "restart", {}, 400, "name one copy"),
    case("two", "restart", {"copy": "c", "component": "base"}, 400, "name one"),
    case("a name too long", "restart", {"copy": "c" * 600}, 400, "no act"),
    case("no person", "restart", {"endpoint": "ep", "who": ""}, 400, "no act"),
    case("no name at all", "drain", {"instance": ""}, 400, "no act"),
    case("unknown member", "drain", {"instance": "i", "force": True}, 400, "no act"),
    case("others' account", "drain", {"instance": "i-001", "account": "x"}, 404, "no instance"),
)
def test_what_cannot_be_done_is_answered_with_the_reason(
    acts: Acts, act: str, asked: dict[str, object], status: int, why: str
) -> None:
    revision = acts.store.revision()
    answer = acts.post(act, **asked)
    assert answer.status_code == status
    assert why in answer.json()["error"]
    assert acts.store.revision() == revision
    assert [it.outcome.partition(":")[0] for it in acts.audited()] == (
        ["refused"] if status == 404 else []
    )


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[]", b"{" * 5000], ids=["none", "0xff", "list", "deep"]
)
def test_a_body_that_is_no_act_is_refused(acts: Acts, body: bytes) -> None:
    assert acts.send("drain", content=body).status_code == 400


def test_a_serving_endpoint_is_needed(acts: Acts) -> None:
    acts.town.change_endpoint(status=EndpointStatus.DELETING)
    answer = acts.post("restart", endpoint="ep")
    assert (answer.status_code, acts.audited()[0].act) == (409, "restart")
    assert "is Deleting, and does not serve" in answer.json()["error"]


def test_a_store_that_fails_is_no_refusal(acts: Acts) -> None:
    acts.store.fault = StoreUnavailable("disk full")
    answer = acts.post("restart", component="base")
    assert (answer.status_code, answer.json()["error"]) == (503, "Try again: disk full")
    assert [it.outcome for it in acts.audited()] == ["failed: disk full", "accepted"]
    acts.store.fault = None
    assert not acts.post("restart", component="base").json()["already"]


def test_an_act_that_cannot_be_audited_is_not_carried_out(acts: Acts) -> None:
    revision = acts.store.revision()
    acts.files.is_full = True
    answer = acts.post("drain", instance=acts.instance)
    assert answer.status_code == 507
    assert "nothing was done" in answer.json()["error"]
    assert acts.store.revision() == revision
