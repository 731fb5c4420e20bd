"""Services of a platform: their commands, and the digests of program and configuration."""

import sys
from collections.abc import Mapping, Sequence

from msgspec.structs import asdict, replace

from hostelry.aws.access_keys import STORE_KEY_ID
from hostelry.base.ports import free_port
from hostelry.cluster.start import service_addresses
from hostelry.home.fleet_option import RAY
from hostelry.home.home import ENVIRONMENT_VARIABLE, Home
from hostelry.home.store_option import VARIABLE as STORE_VARIABLE
from hostelry.processes import objectstore, watcher
from hostelry.processes.start import HostPlan, StartPlan, inherit_listener
from hostelry.processes.started_by import digest, identify_program, service_digest
from hostelry.processes.store_disk import StoreDisk
from hostelry.processes.supervision import PATIENT_LIVENESS
from hostelry.processes.supervisor import Command, ServiceSpec


def gateway_digest(start: StartPlan) -> str:
    """The digest of the program and configuration of the gateway's workers."""
    return service_digest("gateway", start.config, start.credentials)


def list_services(start: StartPlan, env: Mapping[str, str]) -> list[ServiceSpec]:
    """The services behind the gateway, in the order of their start."""
    config, own = start.config, [] if start.config.is_gateway_host else control_services(start, env)
    if config.cluster_host is not None:
        own.append(proxy_service(start, env))
    if config.peer_port:
        own.append(own_service("peers", "hostelry.services.peers", config.peer_port, start, env))
    if config.mirror_process:
        own.append(own_service("mirror", "hostelry.services.mirror", 0, start, env))
    if config.has_console:
        own.append(
            own_service("console", "hostelry.services.console", config.console_port, start, env)
        )
    if config.is_gateway_host:
        link = ("link", "hostelry.services.control_link", config.control_port)
        return [own_service(*link, start, env), *own]
    if not config.has_own_s3:
        return own
    living = start.found.get("objectstore")
    # A store of an earlier version has the S3 port itself, so it gets another port.
    kept = living.port if living and living.port != config.s3_port else None
    inner_port = kept or free_port()
    return [
        store_service(start, env, inner_port),
        s3_proxy_service(start, env, inner_port),
        *own,
    ]


def s3_proxy_service(start: StartPlan, env: Mapping[str, str], inner_port: int) -> ServiceSpec:
    """The S3 port, in front of the object store."""
    config, credentials = start.config, start.credentials
    argv = [sys.executable, "-m", "hostelry.s3.proxy", "--home", str(start.home.root)]
    argv += ["--target", str(inner_port)]
    files = (config.https_cert, config.https_key)
    read = (config.host, config.s3_port, config.control_url, files, asdict(credentials))
    return ServiceSpec(
        name="s3door",
        module=argv[2],
        command=lambda: Command(argv=argv, env=env),
        port=config.s3_port,
        digest=digest(argv, read),
        liveness=PATIENT_LIVENESS,
    )


def control_services(start: HostPlan, env: Mapping[str, str]) -> list[ServiceSpec]:
    """Control, and the process for jobs."""
    config = start.config
    control = own_service("control", "hostelry.control.main", config.control_port, start, env)
    command = replace(control.command(), may_fork=config.fleet != RAY)  # control starts agents
    return [
        replace(control, command=lambda: command),
        own_service("jobs", "hostelry.services.jobs", config.jobs_port, start, env),
    ]


def own_service(
    name: str, module: str, port: int, start: HostPlan, env: Mapping[str, str]
) -> ServiceSpec:
    """One of our own processes, run with this interpreter. It answers heartbeats."""
    argv = [sys.executable, "-m", module, "--home", str(start.home.root)]
    return ServiceSpec(
        name=name,
        module=module,
        command=lambda: Command(argv=argv, env=env),
        port=port,
        digest=service_digest(name, start.config, start.credentials),
        liveness=PATIENT_LIVENESS,
    )


def proxy_service(start: HostPlan, env: Mapping[str, str]) -> ServiceSpec:
    """The node proxy, through which other hosts reach the servers of this host.

    It inherits the listening socket of its predecessor if the address is the same.
    """
    config = start.config
    inherited = inherit_listener(start.home, start.found, "proxy")
    if inherited is not None and inherited.getsockname()[:2] != (
        config.cluster_host,
        config.cluster_port,
    ):
        inherited.close()
        inherited = None
    argv = [sys.executable, "-m", "hostelry.services.node_proxy", "--home", str(start.home.root)]
    read = (service_addresses(config), config.cluster_host, config.cluster_port, config.controls)
    files = (config.tls_ca, config.tls_cert, config.tls_key)

    def command() -> Command:
        if inherited is None:
            return Command(argv=argv, env=env)
        given = inherited.fileno()
        return Command(argv=[*argv, f"--listener={given}"], env=env, pass_fds=[given])

    return ServiceSpec(
        name="proxy",
        module=argv[2],
        command=command,
        starts_beside=inherited is not None,
        port=config.cluster_port,
        digest=digest(argv, read, files, config.host, asdict(start.credentials)),
        liveness=PATIENT_LIVENESS,
    )


def store_service(start: StartPlan, env: Mapping[str, str], port: int) -> ServiceSpec:
    """The embedded object store. `objectstore` says why it is stopped by SIGKILL."""
    home, credentials, kms_url = start.home, start.credentials, start.config.gateway_url
    disk = StoreDisk(home.root, home.logs / "objectstore.log")

    async def is_alive(timeout_s: float) -> bool:
        return not disk.needs_restart() and await objectstore.is_alive(port, timeout_s)

    def command() -> Command:
        disk.forget_reports()
        started = objectstore.prepare(home, port, credentials, env, kms_url)
        return Command(argv=started.argv, env=started.env)

    keys = (credentials.access_key_id, credentials.secret_access_key)
    kms = (credentials.region, kms_url, STORE_KEY_ID)
    return ServiceSpec(
        name="objectstore",
        command=command,
        port=port,
        digest=digest(port, keys, kms, identify_program(objectstore.weed_binary())),
        after=lambda: objectstore.remove_sockets(home),
        liveness=PATIENT_LIVENESS,
        is_alive=is_alive,
    )


def watcher_service(
    home: Home, environment: Mapping[str, str], program: Sequence[str]
) -> ServiceSpec:
    """The process (`watcher`) that starts a killed `up` again with the command `program`."""
    argv = [sys.executable, "-I", "-S", watcher.__file__]
    argv += [str(home.kept), str(home.up_lock), str(home.logs / "up.log"), *program]
    return ServiceSpec(
        name="watcher",
        command=lambda: Command(argv=argv, env=environment),
        port=0,
        digest=digest(argv),
    )


def service_environment(inherited: Mapping[str, str], home: Home) -> dict[str, str]:
    """The environment of services.

    It has no AWS settings and no URL of the store, and connects to this machine without a proxy.
    """
    kept = {k: v for k, v in inherited.items() if not k.startswith("AWS_") and k != STORE_VARIABLE}
    no_proxy = [v for k, v in kept.items() if k.lower() == "no_proxy" and v]
    local = ",".join([*no_proxy, "127.0.0.1", "localhost"])
    return {
        **kept,
        "NO_PROXY": local,
        "no_proxy": local,
        "PYTHONUNBUFFERED": "1",
        ENVIRONMENT_VARIABLE: str(home.root),
    }
