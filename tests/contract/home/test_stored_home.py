"""A home folder that an earlier version wrote is read whole, and loses no field when rewritten.

`stored_home.json` has the records, files and metric segments of a home with two endpoints, written
by the commit before the packages and classes had their present names.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hostelry.base.clock import ManualClock
from hostelry.dataplane.routes import RouteFile
from hostelry.domain.metric import Metric, MetricStat
from hostelry.domain.scope import Scope
from hostelry.fleet.records import instance_folders
from hostelry.home.home import Home, load_config, save_config
from hostelry.metrics.persistence.durable import DurableMetrics
from hostelry.store.memory import MemoryStore
from hostelry.store.protocol import Key
from hostelry.store.records import Records, State, open_state

STORED: dict[str, Any] = json.loads((Path(__file__).parent / "stored_home.json").read_text())
SCOPE = Scope(account="111122223333", region="us-east-1")
KINDS = sorted({it["kind"] for it in STORED["records"]})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    for name, content in STORED["files"].items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    return Home(tmp_path)


def kinds(state: State) -> dict[str, Records[Any]]:
    values = (getattr(state, it.name) for it in fields(state))
    return {it.kind: it for it in values if isinstance(it, Records)}


def lost(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """Where a value that `old` has is missing or another in `new`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            yield from lost(value, new.get(name), f"{at}.{name}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from lost(before, after, f"{at}[{number}]")
    elif old != new:
        yield f"{at}: {old!r} became {new!r}"


def test_every_kind_of_record_that_the_home_has_is_still_read() -> None:
    assert set(KINDS) <= set(kinds(open_state(MemoryStore())))


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_read_and_keeps_every_field_when_it_is_written_again(kind: str) -> None:
    store = MemoryStore()
    bodies = {it["name"]: it["body"] for it in STORED["records"] if it["kind"] == kind}
    for name, body in bodies.items():
        store.put(Key(kind=kind, scope=SCOPE, name=name), json.dumps(body).encode(), expect=None)
    records = kinds(open_state(store))[kind]
    for name, body in bodies.items():
        found = records.get(SCOPE, name)
        assert found is not None
        records.put(SCOPE, name, found.value, expect=found.version)
        written = store.get(Key(kind=kind, scope=SCOPE, name=name))
        assert written is not None
        assert list(lost(body, json.loads(written.body))) == []


def test_an_instance_s_folder_is_read_with_its_agent_and_copies(home: Home) -> None:
    folders = instance_folders(home.instances)
    num_copies = 0
    for folder in folders:
        desired, agent = folder.load_desired(), folder.load_agent()
        assert desired is not None
        assert agent is not None
        assert folder.load_starting() == agent.process
        assert folder.load_devices() == ()
        assert sorted(it.id for it in desired) == sorted(folder.copy_ids())
        for spec in desired:
            record = folder.copy(spec.id).load()
            assert record is not None
            assert record.ever_ready
            before = json.loads(folder.copy(spec.id).record.read_text())
            assert list(lost(before, json.loads(msgspec.json.encode(record)))) == []
            num_copies += 1
    assert (len(folders), num_copies) == (2, 4)


def test_the_gateway_s_last_routes_are_read(home: Home) -> None:
    snapshot = RouteFile(home.routes, lambda path, body: None).load()
    assert [it.name for it in snapshot.endpoints] == ["d", "m"]
    assert [len(it.copies) for it in snapshot.endpoints[0].components] == [3]
    before = json.loads(home.routes.read_text())
    assert list(lost(before, json.loads(msgspec.json.encode(snapshot)))) == []


def test_the_configuration_of_the_last_up_keeps_every_field(home: Home) -> None:
    before = json.loads(home.config.read_text())
    save_config(home, load_config(home))
    assert list(lost(before, json.loads(home.config.read_text()))) == []


def test_the_metrics_of_the_journal_are_there(home: Home) -> None:
    home.metrics.mkdir()
    for name, content in STORED["metrics"].items():
        (home.metrics / name).write_bytes(base64.b64decode(content))
    began = min(it["body"]["created_at"] for it in STORED["records"] if it["kind"] == "endpoint")
    store = DurableMetrics(home.metrics, ManualClock(began + 300.0))
    dimensions = (("InferenceComponentName", "echo"),)
    metric = Metric(namespace="AWS/SageMaker", name="Invocations", dimensions=dimensions)
    stat = MetricStat(metric=metric, period_s=60, statistic="Sum")
    points = store.datapoints(SCOPE, stat, began - 120.0, began + 300.0)
    assert sum(it.value for it in points) == 20.0
    store.close()
