"""A container engine for tests: with an image that it can run, or the reason why it cannot."""

import asyncio
import atexit
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from tests.integration.agent_rig import Rig, echo, rig, until_failed

from hostelry.base.errors import TerminalError
from hostelry.base.guards import COPY_KEY_HEADER
from hostelry.domain.copy import CopyStatus
from hostelry.fleet.launch.container_arguments import INSTANCE_LABEL, EngineFacts
from hostelry.fleet.launch.container_engine import find_engine

SOURCE = Path(__file__).parent / "servers" / "box_server.c"
BOX = f"localhost/hostelry-box-{os.getpid()}"
IMAGE = f"{BOX}:1"
PORT_IMAGE = f"{BOX}:port"
FLAT_IMAGE = f"{BOX}:flat"
BIND = "com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true"
# The engine to test with. By default it is the engine that the platform would choose.
ENGINE = os.environ.get("HOSTELRY_TEST_ENGINE")
ENGINE_TABLE = f'[containers]\nengine = "{ENGINE}"\n' if ENGINE else ""
CANNOT = "This machine cannot run containers"


@dataclass(frozen=True)
class Machine:
    """The engine, or the reason why containers do not work."""

    engine: EngineFacts | None
    fault: str = ""

    def call(self, *arguments: str) -> str:
        assert self.engine is not None
        argv = [*self.engine.argv, *arguments]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


@cache
def machine() -> Machine:
    """This machine's engine with the tests' images, after one of them has run."""
    try:
        found = Machine(asyncio.run(find_engine(ENGINE)))
    except TerminalError as error:
        return Machine(None, str(error))
    with TemporaryDirectory() as folder:
        tar = _root(Path(folder))
        entry = 'ENTRYPOINT ["/bin/server"]'
        found.call("import", "--change", entry, tar, IMAGE)
        found.call("import", "--change", entry, "--change", f"LABEL {BIND}", tar, PORT_IMAGE)
        found.call("import", tar, FLAT_IMAGE)
    atexit.register(found.call, "rmi", "--force", IMAGE, PORT_IMAGE, FLAT_IMAGE)
    return found


@contextmanager
def container_rig(folder: Path, s3_url: str = "http://127.0.0.1:9") -> Iterator[Rig]:
    """A home whose images run as containers, because images.toml has no rules."""
    with rig(folder, s3_url) as there:
        there.home.images.write_text(ENGINE_TABLE)
        yield there


def where_containers_run(test: Callable[[Path], None]) -> Callable[[Path], None]:
    """Run the test. If containers do not work here, assert that a copy's failure says so."""

    @wraps(test)
    def reported(tmp_path: Path) -> None:
        if machine().engine is not None:
            test(tmp_path)
            return

        async def work(there: Rig) -> None:
            agent = await there.launch()
            await agent.apply([echo("c-1", image=IMAGE)])
            reason = (await until_failed(agent)).reason or ""
            assert CANNOT in reason, machine().fault
            assert "apt-get install podman" in reason

        with container_rig(tmp_path) as there:
            asyncio.run(work(there))

    return reported


async def invoke(status: CopyStatus, body: str) -> httpx.Response:
    """The answer of the box's server to `body`."""
    shown = {} if status.key is None else {COPY_KEY_HEADER: status.key}
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=20, headers=shown) as http:
        return await http.post(f"{status.address}/invocations", content=body.encode())


async def output(status: CopyStatus, body: str) -> str:
    answer = await invoke(status, body)
    assert answer.status_code == 200, answer
    return answer.text


def containers(there: Rig) -> list[str]:
    """The engine's containers of the rig's first instance, running or not."""
    label = f"label={INSTANCE_LABEL}={there.folder().root}"
    return machine().call("ps", "--all", "--filter", label, "--format", "{{.Names}}").split()


def _root(folder: Path) -> str:
    """A tar that contains only the server, and the folders that mounts need."""
    server, tar = folder / "server", folder / "root.tar"
    compiler = os.environ.get("CC", "gcc")
    command = [compiler, "-D_GNU_SOURCE", "-O1", "-static", "-o", str(server), str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    with tarfile.open(tar, "w") as archive:
        archive.add(server, "bin/server")
    return str(tar)
