"""Options of `hostelry up`: checks, and the keys and configuration that they make. Pure."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from hostelry.base.errors import TerminalError, UsageError
from hostelry.domain.at_zero import AtZero
from hostelry.fleet.rules.copy_user import AUTO, CopyUser
from hostelry.home.fleet_option import absolute, check_fleet
from hostelry.home.home import Credentials, UpConfig, new_credentials
from hostelry.home.port_choice import ChosenPorts
from hostelry.home.ports import is_loopback
from hostelry.home.settings import (
    ALL,
    CONTROLS,
    GATEWAYS,
    PORT,
    PlatformSetting,
    Rule,
    SharedSettings,
    allow_choices,
    setting,
    within,
)
from hostelry.home.store_option import VARIABLE

DEFAULT_ACCOUNT = "111122223333"  # the account number of AWS's own examples
DEFAULT_REGION = "us-east-1"
ACCOUNT_PATTERN = re.compile(r"[0-9]{12}")
REGION_PATTERN = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
MAX_DEFAULT_WORKERS = 4


def to_binary_bytes(size_mb: float) -> int:
    """Bytes of a size in MiB."""
    return int(size_mb * 1024 * 1024)


def to_decimal_bytes(size_gb: float) -> int:
    """Bytes of a size in GB."""
    return int(size_gb * 1000**3)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions(SharedSettings):
    """Arguments of `hostelry up`. None: the home's earlier choice, or the default."""

    home: Path
    port: int | None = setting(
        None,
        "Port of the gateway. [default: 8787, or a free port if 8787 is taken]",
        PORT,
        GATEWAYS,
    )
    s3_port: int | None = setting(
        None, "Port of the object store. [default: 8788, or a free port if 8788 is taken]", PORT
    )
    region: str | None = setting(
        None,
        "Region, set at the first start. [default: us-east-1]",
        Rule(lambda it: REGION_PATTERN.fullmatch(it), "expected a name like us-east-1"),
    )
    account_id: str | None = setting(
        None,
        "Account id, set at the first start. [default: 111122223333]",
        Rule(lambda it: ACCOUNT_PATTERN.fullmatch(it), "an account id has 12 digits"),
    )
    max_body_mb: float = setting(
        25.0,
        "Maximum size of a request body.",
        Rule(lambda it: 0 < it <= 1024, "expected more than 0 and at most 1024"),
        config="max_body_bytes",
        convert=to_binary_bytes,
    )
    artifact_cache_gb: float = setting(
        50.0,
        "Disk limit for downloaded artifacts, per instance.",
        Rule(lambda it: 0.1 <= it < float("inf"), "expected at least 0.1"),
        config="artifact_cache_bytes",
        convert=to_decimal_bytes,
        read_by="control",
    )
    gateway_workers: int | None = setting(
        None,
        "Number of gateway processes. [default: one per CPU, up to 4]",
        within(1, 64),
        GATEWAYS,
        read_by="gateway",
    )
    console: bool = setting(True, "Do not serve the web console at /console.")
    at_zero: str = setting(
        AtZero.HOLD.value,
        "Requests while there is no copy: hold (requests wait while a copy starts) or compat "
        "(requests fail as on AWS). The tag hostelry:zero overrides this setting for an endpoint "
        "or component.",
        allow_choices(
            [it.value for it in AtZero],
            "expected hold (requests wait for a copy) or compat (AWS's error at once)",
        ),
        config="at_zero",
        convert=AtZero,
    )
    hold_mb: float = setting(
        256.0,
        "Maximum total size of the requests that wait.",
        within(1, 1024 * 1024),
        GATEWAYS,
        config="hold_bytes",
        convert=to_binary_bytes,
        read_by="gateway",
    )
    metrics_mb: float = setting(
        256.0,
        "Memory limit for metrics.",
        within(8, 1024 * 1024),
        config="metrics_bytes",
        convert=to_binary_bytes,
        read_by="control",
    )
    logs_mb: float = setting(
        1024.0,
        "Disk limit for log events.",
        within(16, 1024 * 1024),
        config="logs_bytes",
        convert=to_binary_bytes,
        read_by="control",
    )
    audit_mb: float = setting(
        1024.0,
        "Disk limit for the audit log. The oldest records are removed.",
        within(32, 1024 * 1024),
        config="audit_bytes",
        convert=to_binary_bytes,
        read_by="control",
    )
    copy_user: str = setting(
        AUTO,
        "User of copies that are programs: auto (a separate user per copy, if Hostelry runs as "
        "root), none (Hostelry's user), or the name or number of one unprivileged user for all "
        "copies.",
        read_by="control",
        metavar="auto|none|NAME|UID",
    )
    files_gb: float = setting(
        20.0,
        "Disk limit per account for files of OpenAI's API (/v1/files).",
        Rule(lambda it: 0.001 <= it < float("inf"), "expected at least 0.001"),
        config="files_bytes",
        convert=to_decimal_bytes,
        read_by="jobs",
    )
    store: str | None = setting(
        None,
        "Database of the platform's records: postgresql://USER@HOST/DATABASE, or sqlite for a "
        "file in the home. Give a password in PGPASSWORD or PGPASSFILE. [default: as at the last "
        "start, or sqlite]",
        commands=CONTROLS,
        metavar="URL|sqlite",
        envvar=VARIABLE,
        is_secret=True,
    )
    cluster_host: str | None = setting(
        None,
        "Address at which the platform's other hosts reach this host, over TLS. [default: none]",
        commands=ALL,
    )
    cluster_port: int | None = setting(
        None, "Port of --cluster-host. [default: 7443]", commands=ALL
    )
    tls_ca: str | None = setting(
        None, "PEM file of the authority that signs the cluster's certificates.", commands=ALL
    )
    tls_cert: str | None = setting(
        None,
        "PEM file of your certificate for other hosts, with its chain. It must name "
        "spiffe://CLUSTER/control/NAME. [default: Hostelry makes and renews a certificate]",
        commands=ALL,
    )
    tls_key: str | None = setting(None, "PEM file of the key of --tls-cert.", commands=ALL)
    https_cert: str | None = setting(
        None,
        "PEM file of a certificate with its chain. The gateway and the S3 port then serve HTTPS.",
        commands=GATEWAYS,
    )
    https_key: str | None = setting(None, "PEM file of the key of --https-cert.", commands=GATEWAYS)
    https_ca: str | None = setting(
        None,
        "PEM file of the authority that signed --https-cert, if it is not a public one.",
        commands=GATEWAYS,
    )
    ray_runtime_env: Path | None = setting(
        None,
        "YAML or JSON file with Ray's runtime environment for instances, which must include "
        "Hostelry. [default: the packages installed on the nodes]",
        config="ray_runtime_env",
        convert=absolute,
        read_by="control",
    )
    node_dir: Path | None = setting(
        None,
        "Folder for instances on Ray nodes. [default: in the node's temporary folder]",
        config="node_dir",
        convert=absolute,
        read_by="control",
    )
    gateway_only: bool = False  # a host with gateways, of a platform that it has joined
    control_only: bool = False  # a host with control, of a platform that it has joined

    @property
    def embedded_store(self) -> bool:
        """Whether the platform runs its own object store."""
        return self.s3_endpoint is None


SETTINGS: dict[str, PlatformSetting] = {
    option.name: option.metadata["setting"] for option in fields(UpOptions) if option.metadata
}


def check_options(options: UpOptions) -> None:
    """Raise TerminalError naming the flag, the value and the allowed values."""
    check_host(options)
    for name, declared in SETTINGS.items():
        value, rule = getattr(options, name), declared.rule
        if value is not None and rule is not None and not rule.allows(value):
            shown = f"{value:g}" if isinstance(value, float) else value
            raise UsageError(f"--{name.replace('_', '-')} {shown}: {rule.text}")
    if options.embedded_store and options.port is not None and options.port == options.s3_port:
        raise UsageError(f"--port and --s3-port are both {options.port}; they must differ")
    check_fleet(options.fleet, options.ray_address, options.ray_runtime_env, options.node_dir)
    if options.s3_endpoint is not None:
        check_endpoint(options.s3_endpoint)


def check_host(options: UpOptions) -> None:
    """Raise UsageError for an invalid address, or one that is open to unsigned remote requests."""
    if options.host != "localhost":
        try:
            ipaddress.ip_address(options.host)
        except ValueError:
            raise UsageError(
                f"--host {options.host}: expected an IP address of this machine, or localhost"
            ) from None
    if options.insecure_no_auth and not is_loopback(options.host):
        raise UsageError(
            f"--insecure-no-auth with --host {options.host} would let in every client that reaches "
            "this machine; it is allowed on loopback only"
        )


def check_endpoint(url: str) -> None:
    """Raise UsageError unless `url` names an S3 endpoint as boto3 takes it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise UsageError(f"--s3-endpoint {url}: expected a URL like http://127.0.0.1:9000")


def decide_credentials(
    options: UpOptions, stored: Credentials | None, environment: Mapping[str, str]
) -> Credentials:
    """The keys of this start: the home's keys, or with --s3-endpoint the operator's AWS pair.

    Raises TerminalError if the flags contradict the home's account or region, or if no key is known
    for another object store.
    """
    pair = operator_pair(environment) if options.s3_endpoint is not None else None
    if options.s3_endpoint is not None and pair is None and stored is None:
        raise TerminalError(
            "--s3-endpoint needs that store's keys: set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY; this hostelry uses the same pair"
        )
    if stored is None:
        account, region = options.account_id or DEFAULT_ACCOUNT, options.region or DEFAULT_REGION
        return new_credentials(account, region, *(pair or (None, None)))
    for flag, wanted, have in (
        ("--account-id", options.account_id, stored.account_id),
        ("--region", options.region, stored.region),
    ):
        if wanted is not None and wanted != have:
            raise TerminalError(
                f"{flag} {wanted}: {options.home} was made for {have}, which is in the ARNs of its "
                "resources; use another --home"
            )
    if pair is None:
        return stored
    return replace(stored, access_key_id=pair[0], secret_access_key=pair[1])


def operator_pair(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The AWS key pair of the environment. None if half of it is missing.

    Raises TerminalError for temporary keys: they expire, and need their session token.
    """
    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    if environment.get("AWS_SESSION_TOKEN"):
        raise TerminalError(
            "AWS_SESSION_TOKEN is set: temporary keys expire and cannot become a hostelry's keys; "
            "use a permanent pair for --s3-endpoint"
        )
    return key, secret


def configured_settings(options: UpOptions, command: str = "up") -> dict[str, Any]:
    """Fields of the configuration that come from options of `command` alone."""
    shared = {it.name for it in fields(SharedSettings)}
    configured = {}
    for name, declared in SETTINGS.items():
        field_name = declared.config or (name if name in shared else "")
        if field_name and command in declared.commands:
            value = getattr(options, name)
            configured[field_name] = declared.convert(value) if declared.convert else value
    return configured


def find_fields_read_by(service: str) -> frozenset[str]:
    """Names of the configuration's fields that only `service` reads."""
    return frozenset(it.config or name for name, it in SETTINGS.items() if it.read_by == service)


def choose_workers(options: UpOptions, num_cpus: int) -> int:
    """Number of gateway processes."""
    return options.gateway_workers or min(MAX_DEFAULT_WORKERS, num_cpus)


def decide_config(
    options: UpOptions,
    ports: ChosenPorts,
    inner_ports: tuple[int, int, int],
    num_cpus: int,
    copy_user: CopyUser | None = None,
    store_url: str | None = None,
) -> UpConfig:
    """The configuration that every process of the platform reads.

    `inner_ports`: of control, of jobs and of the console, 0 without a console.
    """
    return UpConfig(
        **configured_settings(options),
        gateway_port=ports.gateway_port,
        s3_port=ports.s3_port,
        control_port=inner_ports[0],
        jobs_port=inner_ports[1],
        console_port=inner_ports[2],
        gateway_workers=choose_workers(options, num_cpus),
        copy_user=copy_user,
        store_url=store_url,
        chosen_gateway_port=ports.chosen_gateway,
        chosen_s3_port=ports.chosen_s3,
    )
