"""A home with real agents, the echo model server and an object store, for one test each."""

import asyncio
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from tests.integration.echo_image import ECHO_IMAGE

from hostelry.base.clock import monotonic_s
from hostelry.base.ports import free_port
from hostelry.domain.copy import (
    AdapterPlacement,
    CopyPhase,
    CopySpec,
    CopyStatus,
    Instance,
    InstanceState,
)
from hostelry.domain.model import ArtifactSource, Container, SourceKind
from hostelry.domain.scope import Scope
from hostelry.domain.shape import Requirements
from hostelry.fleet.artifacts.objects import build_client
from hostelry.fleet.artifacts.protocol import ArtifactError, Fetch
from hostelry.fleet.host.processes import identify
from hostelry.fleet.local.client import HttpAgent
from hostelry.fleet.local.fleet import LocalFleet, stop_everything
from hostelry.fleet.protocol import Agent
from hostelry.fleet.records import InstanceFolder
from hostelry.fleet.shapes import get_shape
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials
from hostelry.processes.objectstore import prepare, remove_sockets

IMAGES = f"""{ECHO_IMAGE}
[[image]]
pattern = "nowhere:*"
command = ["/nowhere/server"]
[image.probe]
content_type = "application/json"
body = "{{}}"

[containers]
enabled = false
"""
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Rig:
    """A home with real instances. Everything in it is stopped at the end of the test."""

    home: Home
    fleet: LocalFleet
    key: str

    def impatient_fleet(self) -> LocalFleet:
        """The same fleet in a control that assumes after a second that an agent hangs."""
        return LocalFleet(self.home.instances, agent_command(self.home), self.key, 1.0)

    async def launch(self, instance_id: str = "i-1") -> HttpAgent:
        return HttpAgent((await self.fleet.launch(instance(instance_id))).address, self.key)

    def folder(self, instance_id: str = "i-1") -> InstanceFolder:
        return InstanceFolder((self.home.instances / instance_id).resolve())

    def agent_pid(self, instance_id: str = "i-1") -> int:
        record = self.folder(instance_id).load_agent()
        assert record is not None
        return record.process.pid


class NoArtifacts:
    """The artifact store for copies that need no artifacts."""

    async def fetch(self, want: Fetch) -> Path:
        raise ArtifactError(f"{want.source.uri}: there is no object store in this test")

    def retain(self, copy_ids: Collection[str]) -> None:
        del copy_ids

    def release(self, holder: str) -> None:
        del holder


def instance(instance_id: str, instance_type: str = "ml.m5.large") -> Instance:
    return Instance(
        id=instance_id,
        scope=Scope("123456789012", "us-west-2"),
        endpoint_name="e",
        variant_name="v",
        generation=1,
        instance_type=instance_type,
        shape=get_shape(instance_type),
        state=InstanceState.LAUNCHING,
        created_at=0.0,
    )


def echo(
    copy_id: str = "c-1",
    mode: str = "ok",
    *,
    image: str = "echo:1",
    startup_timeout_s: float = 30.0,
    source: ArtifactSource | None = None,
    environment: Mapping[str, str] | None = None,
    adapters: tuple[AdapterPlacement, ...] = (),
    requirements: Requirements | None = None,
) -> CopySpec:
    return CopySpec(
        id=copy_id,
        owner=f"component/{copy_id}",
        container=Container(
            image=image, source=source, environment={"ECHO_MODE": mode, **(environment or {})}
        ),
        requirements=requirements,
        download_timeout_s=20.0,
        startup_timeout_s=startup_timeout_s,
        adapters=adapters,
    )


def adapter(adapter_id: str, uri: str) -> AdapterPlacement:
    source = ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE)
    return AdapterPlacement(id=adapter_id, alias=adapter_id.partition("@")[0], source=source)


async def until(
    agent: Agent, holds: Callable[[dict[str, CopyStatus]], bool]
) -> dict[str, CopyStatus]:
    """The copies by id, once `holds` is true for them."""
    deadline = monotonic_s() + PATIENCE_S
    have = None
    while True:
        observation = await agent.observe(have, 5.0)
        have = observation.version
        copies = {copy.id: copy for copy in observation.copies}
        if holds(copies):
            return copies
        assert monotonic_s() < deadline, copies


async def until_ready(agent: Agent, copy_id: str = "c-1") -> CopyStatus:
    def ready(copies: dict[str, CopyStatus]) -> bool:
        assert copies[copy_id].phase is not CopyPhase.FAILED, copies[copy_id]
        return copies[copy_id].phase is CopyPhase.READY

    return (await until(agent, ready))[copy_id]


async def until_failed(agent: Agent, copy_id: str = "c-1") -> CopyStatus:
    copies = await until(agent, lambda it: it[copy_id].phase is CopyPhase.FAILED)
    return copies[copy_id]


async def until_true(holds: Callable[[], bool], what: str) -> None:
    deadline = monotonic_s() + PATIENCE_S
    while not holds():
        assert monotonic_s() < deadline, f"not within {PATIENCE_S} s: {what}"
        await asyncio.sleep(0.02)


async def until_gone(pid: int) -> None:
    await until_true(lambda: identify(pid) is None, f"process {pid} is gone")


async def ask(status: CopyStatus, path: str) -> Any:
    """The echo server's report on itself."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as http:
        return (await http.get(f"{status.address}{path}")).json()


def kill(pid: int | None, number: signal.Signals = signal.SIGKILL) -> None:
    assert pid is not None
    os.kill(pid, number)


def agent_command(home: Home) -> list[str]:
    return [sys.executable, "-m", "hostelry.services.agent", "--home", str(home.root)]


@contextmanager
def rig(folder: Path, s3_url: str = "http://127.0.0.1:9") -> Iterator[Rig]:
    """A home under `folder`. Its agents read artifacts from `s3_url`."""
    home = Home(folder / "home")
    home.make()
    credentials = new_credentials("123456789012", "us-west-2", "AKIATEST", "secret-of-the-test")
    save_credentials(home, credentials)
    save_config(home, UpConfig(control_port=1, s3_endpoint=s3_url))
    home.images.write_text(IMAGES)
    key = credentials.internal_key
    try:
        yield Rig(home=home, fleet=LocalFleet(home.instances, agent_command(home), key), key=key)
    finally:
        stop_everything(home.instances, grace_s=2.0)


@dataclass(frozen=True)
class ObjectStore:
    """A running SeaweedFS with the bucket ``models``."""

    url: str
    client: Any

    def put(self, key: str, body: bytes) -> str:
        self.client.put_object(Bucket="models", Key=key, Body=body)
        return f"s3://models/{key}"

    def put_archive(self, key: str, folder: Path) -> ArtifactSource:
        """Put the folder's files into an archive."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            tar.add(folder, ".")
        return ArtifactSource(uri=self.put(key, packed.getvalue()), kind=SourceKind.ARCHIVE)


@contextmanager
def object_store(folder: Path, port: int | None = None) -> Iterator[ObjectStore]:
    home = Home(folder / "objectstore-home")
    home.make()
    port = port or free_port()
    store = StoreProcess(home, port)
    try:
        url = f"http://127.0.0.1:{port}"
        client = build_client(url, "AKIATEST", "secret-of-the-test", "us-west-2")
        _until_it_answers(client, store)
        yield ObjectStore(url=url, client=client)
        client.close()
    finally:
        store.end()


class StoreProcess:
    """An object store's process. It starts again if another program has taken one of its ports."""

    def __init__(self, home: Home, port: int) -> None:
        self._home = home
        self._port = port
        self._credentials = new_credentials(
            "123456789012", "us-west-2", "AKIATEST", "secret-of-the-test"
        )
        self._process = self._started()

    def keep_running(self) -> None:
        if self._process.poll() is not None:
            self._process = self._started()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        remove_sockets(self._home)

    def _started(self) -> "subprocess.Popen[bytes]":
        command = prepare(
            self._home, self._port, self._credentials, os.environ, "http://127.0.0.1:1"
        )
        return subprocess.Popen(
            command.argv,
            env=dict(command.env),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
        )


def _until_it_answers(client: Any, store: StoreProcess) -> None:
    deadline = monotonic_s() + PATIENCE_S
    while True:
        try:
            client.create_bucket(Bucket="models")
        except client.exceptions.BucketAlreadyOwnedByYou:
            return
        except client.exceptions.ClientError:
            raise
        except Exception:  # noqa: BLE001 - whatever boto3 raises while nothing listens yet
            assert monotonic_s() < deadline, "the object store does not answer"
            store.keep_running()
            time.sleep(0.1)
        else:
            return
