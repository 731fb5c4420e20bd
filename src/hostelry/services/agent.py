"""An agent's process: ``python -m hostelry.services.agent --home DIR --instance-id ID``.

Wires the agent of one ML instance of the local fleet. On SIGTERM it ends and leaves its copies to a
successor. On POST /shutdown it ends with its copies.
"""

import argparse
import asyncio
import fcntl
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from hostelry.aws.temporary_keys import FOR_OBJECTS, AgentSeal, Session, TemporaryKeys, TokenSeal
from hostelry.base.asgi_server import QuietServer
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.ids import new_temporary_key_id
from hostelry.base.json import decode
from hostelry.base.logging import configure_logging
from hostelry.base.runtimes import runtimes_folder
from hostelry.domain.copy import Instance
from hostelry.domain.serverless import TYPE_PREFIX
from hostelry.fleet.agent.agent import InstanceAgent
from hostelry.fleet.agent.code_packages import CodePackages
from hostelry.fleet.agent.deps import CopyDeps
from hostelry.fleet.agent.model_server import build_http_client
from hostelry.fleet.agent.server import AgentRoutes, EpochGuard, loopback_socket
from hostelry.fleet.artifacts.cache import ArtifactCache
from hostelry.fleet.artifacts.hub import HubModels
from hostelry.fleet.artifacts.objects import LateClient, S3Objects, build_client
from hostelry.fleet.artifacts.store import ArtifactStore
from hostelry.fleet.host.cgroups import cgroup_parents, sweep_groups
from hostelry.fleet.host.processes import own_identity
from hostelry.fleet.launch.container_launcher import CopyLauncher
from hostelry.fleet.launch.environment import select_operator_variables
from hostelry.fleet.launch.launcher import ProcessLauncher
from hostelry.fleet.launch.limited_process import limit_files
from hostelry.fleet.launch.run_as import OpenArtifacts
from hostelry.fleet.launch.warm import IDLE_S, WarmForks
from hostelry.fleet.launch.warm_runtimes import WarmRuntimes
from hostelry.fleet.records import AgentRecord, InstanceFolder, instance_folders
from hostelry.fleet.rules.copy_user import NO_OWN_USERS
from hostelry.fleet.rules.images import LMI_RULE
from hostelry.home.home import Credentials, Home, load_config, load_credentials, log_format
from hostelry.home.home_paths import shown_paths

LOG = logging.getLogger(__name__)

ADOPTION_TIMEOUT_S = 5.0
CALL_KEYS_S = 3600
OWN_KEYS_S = 3600
SERVERLESS_IDLE_S = 3600.0  # warm interpreters last as long as an instance without environments


class AgentServer(QuietServer):
    """A server that ends the long polls of control first: they would outlast its patience."""

    def __init__(self, config: uvicorn.Config, closing: Callable[[], None]) -> None:
        super().__init__(config)
        self._closing = closing

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening and let requests in progress end."""
        self._closing()
        await super().shutdown(sockets)


async def serve(home: Home, instance_id: str) -> None:
    """Run the agent of `instance_id` until SIGTERM or POST /shutdown."""
    instances = home.instances.resolve()
    folder = InstanceFolder(instances / instance_id)
    instance = decode(folder.instance.read_bytes(), Instance)
    devices = folder.load_devices() or ()
    if len(devices) < instance.shape.accelerators:
        LOG.warning(
            "%s declares %d accelerators and this machine has fewer: its copies see none",
            instance.instance_type,
            instance.shape.accelerators,
        )
    config = load_config(home)
    user, no_users = config.copy_user, config.copy_user_problem or NO_OWN_USERS
    if user is not None:
        limit_files(0)  # copies inherit it: it cannot be set for a process of another user
    operator = dict(os.environ)
    is_serverless = instance.instance_type.startswith(TYPE_PREFIX)
    idle_s = SERVERLESS_IDLE_S if is_serverless else IDLE_S
    for_llms = select_operator_variables(operator, LMI_RULE.get_secrets(operator))
    warm = WarmForks(folder.root, for_llms, idle_s=idle_s)
    runtimes = WarmRuntimes(
        runtimes_folder(operator), select_operator_variables(operator, ()), idle_s
    )
    artifacts = artifact_store(home, folder, instance.scope.account)
    places = cgroup_parents()
    sweep_groups(places, SystemClock().now())
    listener = loopback_socket()
    async with build_http_client() as http:
        agent = InstanceAgent(
            instance_id,
            folder,
            CopyDeps(
                images_file=home.images,
                artifacts=artifacts if user is None else OpenArtifacts(artifacts),
                launcher=CopyLauncher(ProcessLauncher(places, warm, user, runtimes)),
                http=http,
                region=instance.scope.region,
                shape=instance.shape,
                instance=instance,
                operator_environment=operator,
                devices=devices,
                held_devices=lambda: held_devices(instances),
                no_own_users=no_users if user is None else None,
                address=f"http://127.0.0.1:{listener.getsockname()[1]}",
                warm=(warm, runtimes),
                packages=CodePackages(folder, operator),
                call_keys=partial(call_keys, home, instance),
                hide_paths=shown_paths(home, operator).text,
            ),
        )
        await agent.start()
        await agent.await_adoption(ADOPTION_TIMEOUT_S)
        await answer(agent, listener, folder, load_credentials(home).internal_key)


def held_devices(instances: Path) -> list[tuple[str, ...]]:
    """The real accelerators of each instance of this machine."""
    return [folder.load_devices() or () for folder in instance_folders(instances)]


def call_keys(home: Home, instance: Instance, role: str) -> dict[str, str | float]:
    """New keys for a copy that invokes models in a role, with the gateway's address now."""
    config, credentials = load_config(home), load_credentials(home)
    session = Session(
        access_key_id=new_temporary_key_id(),
        account_id=instance.scope.account,
        expires_at=int(SystemClock().now()) + CALL_KEYS_S,
        session_name=instance.id,
        bounded_by="" if config.any_role else role,
    )
    keys = build_seal(credentials).issue(session)
    return {
        "gateway_url": config.gateway_url,
        "region": instance.scope.region,
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
        "session_token": keys.session_token,
        "expires_at": float(keys.expires_at),
    }


def build_seal(credentials: Credentials) -> TokenSeal | AgentSeal:
    """The seal of keys that this agent issues. On a node of agents alone, the seal of agents."""
    key = credentials.internal_key
    return AgentSeal(key) if credentials.cluster else TokenSeal(key)


def object_keys(
    credentials: Credentials, account: str, instance_id: str, role: str = ""
) -> TemporaryKeys:
    """New keys by which the agent reads the buckets of `account` in the embedded object store.

    The policies of the role limit the reads, if a role is given.
    """
    session = Session(
        access_key_id=new_temporary_key_id(),
        account_id=account,
        expires_at=int(SystemClock().now()) + OWN_KEYS_S,
        session_name=instance_id,
        purpose=FOR_OBJECTS,
        bounded_by=role,
    )
    return build_seal(credentials).issue(session)


def artifact_store(home: Home, folder: InstanceFolder, account: str) -> ArtifactStore:
    """The artifacts of an instance of `account`, from the object store of this hostelry."""
    config, credentials = load_config(home), load_credentials(home)

    def client(role: str) -> Any:
        if config.s3_endpoint is not None:
            given = (credentials.access_key_id, credentials.secret_access_key)
            return build_client(config.s3_url, *given, credentials.region)
        bounded_by = "" if config.any_role else role
        made = object_keys(credentials, account, folder.root.name, bounded_by)
        own = (made.access_key_id, made.secret_access_key)
        return build_client(config.s3_url, *own, credentials.region, made.session_token)

    @cache
    def open_objects(role: str) -> S3Objects:
        return S3Objects(LateClient(partial(client, role), max_age_s=OWN_KEYS_S / 2))

    return ArtifactStore(
        open_objects(""),
        ArtifactCache(folder.cache, config.artifact_cache_bytes),
        hub=HubModels(),
        objects_of=open_objects,
    )


async def answer(
    agent: InstanceAgent, listener: socket.socket, folder: InstanceFolder, internal_key: str
) -> None:
    """Serve the agent's HTTP. agent.json is written once its port is listened on."""
    server: AgentServer

    def finish() -> None:
        server.should_exit = True

    server = AgentServer(
        uvicorn.Config(
            AgentRoutes(agent, finish, EpochGuard(folder)).app(internal_key),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        ),
        agent.close,
    )
    record = AgentRecord.of(own_identity(), listener.getsockname()[1])
    write_whole(folder.agent, msgspec.json.encode(record))
    measuring = asyncio.create_task(agent.measure())
    try:
        await server.serve(sockets=[listener])
    finally:
        measuring.cancel()


def main() -> None:
    """Parse the arguments and run. Exit with code 1 and a line on standard error if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m hostelry.services.agent", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home folder")
    parser.add_argument("--instance-id", required=True, help="the instance this agent runs")
    arguments = parser.parse_args()
    home = Home(arguments.home)
    configure_logging(f"agent {arguments.instance_id}", log_format=log_format(home))
    folder = InstanceFolder((home.instances / arguments.instance_id).resolve())
    with folder.lock.open("w") as lock:
        try:
            # Held until the process ends. Copies do not inherit it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            record = AgentRecord.of(own_identity(), 0)
            write_whole(folder.agent, msgspec.json.encode(record))
            gc.freeze()  # imported objects: each collection of them stopped the loop for 50 ms
            asyncio.run(serve(home, arguments.instance_id))
        except BlockingIOError:
            sys.exit(f"another agent runs instance {arguments.instance_id}")
        except (TerminalError, OSError, msgspec.DecodeError) as error:
            LOG.exception("the agent cannot run")
            sys.exit(str(error))
        # All is on disk. A normal exit would wait for threads that wait for the object store.
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
