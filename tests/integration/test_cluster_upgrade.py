"""Two controls and two hosts with gateways are upgraded under traffic, one after the other."""

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from tests.https_rig import HostAuthority
from tests.integration.control_rig import create_config
from tests.integration.drill import (
    COMPONENT,
    Traffic,
    copies_of,
    create_component,
    create_endpoint,
    wait_ready,
    write_image_rule,
)
from tests.integration.joined_host import JoinedHost
from tests.integration.platform import Platform, processes_naming, until
from tests.integration.test_supervisor_death import agents, next_version, services
from tests.postgres_rig import postgres_database, postgres_server

import hostelry
from hostelry.base.guards import INTERNAL_KEY_HEADER
from hostelry.base.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
MAJOR, MINOR = hostelry.__version__.split(".")[:2]
NEXT = f"{MAJOR}.{int(MINOR) + 1}.0"
REVISION = 'SCHEMA_REVISION = "{}"'
GROWS = '''"""A column that programs of the version before do not know."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
USABLE_FROM = "0001"


def upgrade() -> None:
    """Add it."""
    op.add_column("records", sa.Column("note", sa.Text, nullable=True))
'''


def package_of_next_version(folder: Path) -> Path:
    """A folder for PYTHONPATH with the next version, whose schema has grown."""
    package = next_version(folder, NEXT)
    store = package / "hostelry/store"
    schema = (store / "schema.py").read_text()
    (store / "schema.py").write_text(
        schema.replace(REVISION.format("0001"), REVISION.format("0002"))
    )
    (store / "migrations/versions/r0002_note.py").write_text(GROWS)
    return package


class Writer:
    """Configurations of endpoints, made one after the other by an SDK that tries again."""

    def __init__(self, host: Platform) -> None:
        self._client = host.boto3(
            "sagemaker", retries={"mode": "standard", "total_max_attempts": 8}
        )
        self._ended = threading.Event()
        self.acknowledged: list[str] = []
        self.errors: list[str] = []

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.1):
            number += 1
            try:
                create_config(self._client, f"written-{number}")
            except (ClientError, BotoCoreError) as error:
                if "already exist" not in str(error):  # by an attempt whose answer was lost
                    self.errors.append(str(error))
                    continue
            self.acknowledged.append(f"written-{number}")

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def goes_on(self) -> None:
        goal = len(self.acknowledged) + 3
        until(lambda: len(self.acknowledged) >= goal or self.errors, "writes are acknowledged", 60)

    def kept(self) -> set[str]:
        pages = self._client.get_paginator("list_endpoint_configs").paginate(
            NameContains="written-"
        )
        return {it["EndpointConfigName"] for page in pages for it in page["EndpointConfigs"]}


def led(asked: Platform) -> dict[str, Any]:
    """Versions of the controls that one knows: of the leader, and of those that stand by."""
    url = f"{asked.config.control_url}/internal/state"
    key = {INTERNAL_KEY_HEADER: asked.credentials.internal_key}
    try:
        answer = httpx.get(url, headers=key, trust_env=False, timeout=10)
        state = answer.json() if answer.status_code == 200 else {}
    except httpx.TransportError:
        state = {}
    members = (state.get("control") or {}).get("members", ())
    return {
        "leader": [it["version"] for it in members if it["leads"]],
        "address": [it["address"] for it in members if it["leads"]],
        "standbys": sorted(it["version"] for it in members if not it["leads"]),
        "gateways": sorted(it["version"] for it in state.get("gateway_hosts", ())),
    }


class Cluster:
    """The hosts, the traffic on both gateways and the writer at control."""

    def __init__(self, root: Path, url: str, stack: contextlib.ExitStack) -> None:
        self.next = package_of_next_version(root / "next")
        self.database = url.rpartition("/")[2]
        write_image_rule(root / "first")
        authority = HostAuthority(root)
        certificate, key = authority.pair("host", "127.0.0.1")
        https = ("--https-cert", str(certificate), "--https-key", str(key))
        workers = ("--gateway-workers", "1", "--no-mirror-process")
        flags = (*workers, *https, "--https-ca", str(authority.ca))
        peers = ("--cluster-host", "127.0.0.1", "--cluster-port", str(free_port()), "--no-console")
        self.first = stack.enter_context(Platform(root / "first", *flags, *peers, "--store", url))
        self.second = JoinedHost(self.first, "control", name="second")
        self.gateways = [
            JoinedHost(self.first, "gateway", *flags, name=name) for name in ("h-1", "h-2")
        ]
        with ThreadPoolExecutor() as starting:
            for host in starting.map(lambda it: it.__enter__(), [self.second, *self.gateways]):
                stack.push(host)
        create_endpoint(self.first)
        create_component(self.first, COMPONENT, copies=2)
        wait_ready(self.first, COMPONENT, copies=2)
        self.traffic = [Traffic(it) for it in self.gateways]
        self.writer = Writer(self.gateways[0])

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Send requests during the block. None may fail, and no acknowledged write may be lost."""
        with contextlib.ExitStack() as stack:
            for one in self.traffic:
                stack.enter_context(one.flowing(threads=2))
            stack.enter_context(self.writer.writing())
            self.goes_on()
            yield
        for one in self.traffic:
            # A connection that a client keeps may be closed in the moment of its next request.
            assert one.errors <= {"ConnectionClosedError"}, one.outcomes
        assert self.writer.errors == []
        assert set(self.writer.acknowledged) <= self.writer.kept()

    def goes_on(self) -> None:
        for one in self.traffic:
            one.goes_on(within_s=60)
        self.writer.goes_on()

    def upgraded(self, host: Platform) -> dict[str, Any]:
        """The report of `hostelry upgrade` by the next version."""
        host.environment["PYTHONPATH"] = str(self.next)
        found: dict[str, Any] = json.loads(host.cli("upgrade", "--json").stdout)
        assert found["version"] == NEXT
        self.goes_on()
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        yield Cluster(tmp_path, stack.enter_context(postgres_database()), stack)
    until(lambda: processes_naming(str(tmp_path)) == [], "no process is left behind")


@pytest.mark.thorough
def test_each_host_is_upgraded_in_its_turn_under_traffic(cluster: Cluster) -> None:
    first = cluster.first
    until(lambda: len(led(first)["gateways"]) == 3, "all hosts report themselves")
    copies, old_agents = copies_of(first, COMPONENT), agents(first)
    with cluster.busy():
        the_standby_comes_first(cluster)
        if not the_leader_hands_over(cluster)["leads"]:  # else it was elected again
            assert agents(first) == old_agents, "the next version has adopted them"
        one_of_the_version_before_stands_by(cluster)
        for host in cluster.gateways:
            assert cluster.upgraded(host)["leads"] is None
            versions = sorted(version_of(it) for it in (first, *cluster.gateways))
            until(lambda: led(first)["gateways"] == versions, "each tells its own")  # noqa: B023
        until(lambda: led(first)["leader"] == [NEXT], "one leads")
        leads = led(first)["address"] == [cluster.second.config.control_address]
        done = cluster.upgraded(cluster.second if leads else first)
        assert len(done["agents"]) == len(old_agents)
        assert set(agents(first)).isdisjoint(old_agents)
        wait_ready(first, COMPONENT, copies=2)
        assert copies_of(first, COMPONENT) == copies, "no copy was restarted"


def version_of(host: Platform) -> str:
    return NEXT if "PYTHONPATH" in host.environment else hostelry.__version__


def the_standby_comes_first(cluster: Cluster) -> None:
    first = cluster.first
    newer = Platform(first.home.root, environment={"PYTHONPATH": str(cluster.next)})
    refused = newer.cli("upgrade", code=1).stderr
    assert f"leads, and is upgraded last, so that one of version {NEXT} follows" in refused
    assert cluster.upgraded(cluster.second)["leads"] is False
    found = postgres_server().execute("SELECT version_num FROM alembic_version", cluster.database)
    assert found == [("0002",)]
    old = [hostelry.__version__]
    until(lambda: led(first)["leader"] == old, "it leads, and writes to a schema that has grown")
    hosts = (f"gateways {it.config.host_id}" for it in cluster.gateways)
    lines = (f"version {NEXT}  control ", *hosts)

    def is_shown() -> bool:
        shown = first.cli("status", code=None).stdout
        return all(it in shown for it in lines)

    until(is_shown, "status shows the versions", 60)


def the_leader_hands_over(cluster: Cluster) -> dict[str, Any]:
    first, old = cluster.first, hostelry.__version__
    before = services(first)
    found = cluster.upgraded(first)
    assert found["leads"] or found["agents"] == []
    assert {"gateway-1", "control", "jobs"} <= set(found["replaced"])
    assert set(before.values()).isdisjoint(services(first).values())
    until(lambda: led(first)["leader"] == [NEXT], "the upgraded standby leads")
    until(lambda: led(first)["gateways"] == [old, old, NEXT], "it knows older gateways")
    return found


def one_of_the_version_before_stands_by(cluster: Cluster) -> None:
    with JoinedHost(cluster.first, "control", name="third") as third:
        until(
            lambda: led(third)["standbys"] == [hostelry.__version__, NEXT],
            "it stands by on a schema that is newer than its own",
        )
