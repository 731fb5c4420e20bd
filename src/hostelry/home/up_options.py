"""Options of `hostelry up`: checks, and the keys and configuration that they make. Pure."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.logging import FORMATS, TEXT
from hostelry.domain.at_zero import AtZero
from hostelry.fleet.rules.copy_user import AUTO, CopyUser
from hostelry.home.fleet_option import LOCAL, absolute, check_fleet
from hostelry.home.home import Credentials, UpConfig, new_credentials
from hostelry.home.port_choice import ChosenPorts
from hostelry.home.ports import is_loopback

DEFAULT_ACCOUNT = "111122223333"  # the account number of AWS's own examples
DEFAULT_REGION = "us-east-1"
ACCOUNT_PATTERN = re.compile(r"[0-9]{12}")
REGION_PATTERN = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
MAX_BODY_LIMIT_MB = 1024
MIN_CACHE_GB = 0.1
MIN_FILES_GB = 0.001
MIN_PACE, MAX_PACE = 1.0, 3600.0
MAX_DEFAULT_WORKERS, MAX_WORKERS = 4, 64
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 1, 86400
MAX_HOLD_REQUESTS = 1_000_000
MAX_HOLD_MB = 1024 * 1024
MAX_DRAIN_S = 3600.0
MIN_LOGS_MB, MAX_LOGS_MB = 16, 1024 * 1024
MIN_LOGS_DAYS, MAX_LOGS_DAYS = 1, 3653
MIN_METRICS_MB, MAX_METRICS_MB = 8, 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Arguments of `hostelry up`; None: the home's earlier choice, or the default."""

    home: Path
    host: str = "127.0.0.1"
    port: int | None = None
    s3_port: int | None = None
    s3_endpoint: str | None = None
    region: str | None = None
    account_id: str | None = None
    insecure_no_auth: bool = False
    any_role: bool = False
    max_body_mb: float = 25.0
    invoke_timeout_s: float = 60.0
    stream_timeout_s: float = 480.0
    artifact_cache_gb: float = 50.0
    pace: float = 1.0
    gateway_workers: int | None = None
    mirror_process: bool = True
    console: bool = True
    at_zero: str = AtZero.HOLD.value
    hold_limit_s: float | None = None
    hold_requests: int = 4096
    hold_requests_each: int = 1024
    hold_mb: float = 256.0
    serverless_idle_s: float = 600.0
    metrics_mb: float = 256.0
    logs_mb: float = 1024.0
    logs_days: int = 14
    copy_user: str = AUTO
    files_gb: float = 20.0
    log_format: str = TEXT
    store: str | None = field(default=None, repr=False)
    drain_s: float = 0.0
    cluster_host: str | None = None  # where other hosts reach this one
    cluster_port: int | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    https_cert: str | None = None  # for clients of gateway and S3 port
    https_key: str | None = None
    https_ca: str | None = None
    gateway_only: bool = False  # a host with gateways, of a platform that it has joined
    control_only: bool = False  # a host with control, of a platform that it has joined
    fleet: str = LOCAL
    ray_address: str | None = None
    ray_runtime_env: Path | None = None
    node_dir: Path | None = None

    @property
    def embedded_store(self) -> bool:
        """Whether the platform runs its own object store."""
        return self.s3_endpoint is None


def check_options(options: UpOptions) -> None:
    """Raise TerminalError naming the flag, the value and what is allowed."""
    check_host(options)
    for flag, port in (("--port", options.port), ("--s3-port", options.s3_port)):
        if port is not None and not 1 <= port <= 65535:
            raise UsageError(f"{flag} {port}: a port is a number from 1 to 65535")
    if options.embedded_store and options.port is not None and options.port == options.s3_port:
        raise UsageError(f"--port and --s3-port are both {options.port}; they must differ")
    if options.account_id is not None and not ACCOUNT_PATTERN.fullmatch(options.account_id):
        raise UsageError(f"--account-id {options.account_id}: an account id has 12 digits")
    if options.region is not None and not REGION_PATTERN.fullmatch(options.region):
        raise UsageError(f"--region {options.region}: expected a name like us-east-1")
    if not 0 < options.max_body_mb <= MAX_BODY_LIMIT_MB:
        raise UsageError(
            f"--max-body-mb {options.max_body_mb:g}: expected more than 0 and "
            f"at most {MAX_BODY_LIMIT_MB}"
        )
    if options.gateway_workers is not None and not 1 <= options.gateway_workers <= MAX_WORKERS:
        raise UsageError(
            f"--gateway-workers {options.gateway_workers}: expected 1 or more and at most "
            f"{MAX_WORKERS}"
        )
    check_timeouts(options)
    check_holding(options)
    check_metrics(options)
    check_logs(options)
    check_disk(options)
    if not 0 <= options.drain_s <= MAX_DRAIN_S:
        raise UsageError(
            f"--drain-s {options.drain_s:g}: expected 0 or more and at most {MAX_DRAIN_S:g}"
        )
    check_fleet(options.fleet, options.ray_address, options.ray_runtime_env, options.node_dir)
    if options.s3_endpoint is not None:
        check_endpoint(options.s3_endpoint)


def check_disk(options: UpOptions) -> None:
    """Raise TerminalError where the disk for artifacts, or for files, is out of range."""
    for flag, size_gb, least_gb in (
        ("--artifact-cache-gb", options.artifact_cache_gb, MIN_CACHE_GB),
        ("--files-gb", options.files_gb, MIN_FILES_GB),
    ):
        if not least_gb <= size_gb < float("inf"):
            raise UsageError(f"{flag} {size_gb:g}: expected at least {least_gb:g}")


def check_metrics(options: UpOptions) -> None:
    """Raise TerminalError where the memory for metrics is out of range."""
    if not MIN_METRICS_MB <= options.metrics_mb <= MAX_METRICS_MB:
        raise UsageError(
            f"--metrics-mb {options.metrics_mb:g}: expected {MIN_METRICS_MB} or more and at most "
            f"{MAX_METRICS_MB}"
        )


def check_logs(options: UpOptions) -> None:
    """Raise TerminalError where disk or time for log events is out of range, or the format none."""
    if options.log_format not in FORMATS:
        raise UsageError(f"--log-format {options.log_format}: expected one of {', '.join(FORMATS)}")
    if not MIN_LOGS_MB <= options.logs_mb <= MAX_LOGS_MB:
        raise UsageError(
            f"--logs-mb {options.logs_mb:g}: expected {MIN_LOGS_MB} or more and at most "
            f"{MAX_LOGS_MB}"
        )
    if not MIN_LOGS_DAYS <= options.logs_days <= MAX_LOGS_DAYS:
        raise UsageError(
            f"--logs-days {options.logs_days}: expected {MIN_LOGS_DAYS} or more and at most "
            f"{MAX_LOGS_DAYS}"
        )


def check_timeouts(options: UpOptions) -> None:
    """Raise TerminalError where the pace or a time limit is out of range."""
    if not MIN_PACE <= options.pace <= MAX_PACE:
        raise UsageError(
            f"--pace {options.pace:g}: expected {MIN_PACE:g} (AWS's own waits) to {MAX_PACE:g}"
        )
    for flag, seconds in (
        ("--invoke-timeout-s", options.invoke_timeout_s),
        ("--stream-timeout-s", options.stream_timeout_s),
        ("--serverless-idle-s", options.serverless_idle_s),
    ):
        if not MIN_TIMEOUT_S <= seconds <= MAX_TIMEOUT_S:
            raise UsageError(
                f"{flag} {seconds:g}: expected {MIN_TIMEOUT_S} or more and at most {MAX_TIMEOUT_S}"
            )


def check_holding(options: UpOptions) -> None:
    """Raise TerminalError where the choice or a bound for requests without a copy is invalid."""
    if options.at_zero not in {it.value for it in AtZero}:
        raise UsageError(
            f"--at-zero {options.at_zero}: expected hold (requests wait for a copy) or compat "
            "(AWS's error at once)"
        )
    if options.hold_limit_s is not None and not (
        MIN_TIMEOUT_S <= options.hold_limit_s <= MAX_TIMEOUT_S
    ):
        raise UsageError(
            f"--hold-limit-s {options.hold_limit_s:g}: expected {MIN_TIMEOUT_S} or more and at "
            f"most {MAX_TIMEOUT_S}"
        )
    for flag, count in (
        ("--hold-requests", options.hold_requests),
        ("--hold-requests-each", options.hold_requests_each),
    ):
        if not 1 <= count <= MAX_HOLD_REQUESTS:
            raise UsageError(f"{flag} {count}: expected 1 or more and at most {MAX_HOLD_REQUESTS}")
    if not 1 <= options.hold_mb <= MAX_HOLD_MB:
        raise UsageError(
            f"--hold-mb {options.hold_mb:g}: expected 1 or more and at most {MAX_HOLD_MB}"
        )


def check_host(options: UpOptions) -> None:
    """Raise TerminalError for no address, or one that is open to unsigned remote requests."""
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
    """Raise TerminalError unless `url` names an S3 endpoint as boto3 takes it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise UsageError(f"--s3-endpoint {url}: expected a URL like http://127.0.0.1:9000")


def decide_credentials(
    options: UpOptions, stored: Credentials | None, environment: Mapping[str, str]
) -> Credentials:
    """The keys of this start: the home's own, or with --s3-endpoint the operator's AWS pair.

    Raises TerminalError where the flags contradict what the home was made with, or where another
    object store is named and no key for it is known.
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
    """The AWS key pair of the environment; None where half of it is missing.

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


def listening_host(options: UpOptions) -> str:
    """The IP address to listen on."""
    return "127.0.0.1" if options.host == "localhost" else options.host


def decide_config(
    options: UpOptions,
    ports: ChosenPorts,
    inner_ports: tuple[int, int, int],
    num_cpus: int,
    copy_user: CopyUser | None = None,
    store_url: str | None = None,
) -> UpConfig:
    """The configuration that every process of the platform reads.

    `inner_ports` are those of control, of jobs and of the console, which is 0 where there is none.
    """
    return UpConfig(
        host=listening_host(options),
        gateway_port=ports.gateway_port,
        s3_port=ports.s3_port,
        control_port=inner_ports[0],
        jobs_port=inner_ports[1],
        console_port=inner_ports[2],
        s3_endpoint=options.s3_endpoint,
        insecure_no_auth=options.insecure_no_auth,
        any_role=options.any_role,
        max_body_bytes=int(options.max_body_mb * 1024 * 1024),
        invoke_timeout_s=options.invoke_timeout_s,
        stream_timeout_s=options.stream_timeout_s,
        artifact_cache_bytes=int(options.artifact_cache_gb * 1000**3),
        pace=options.pace,
        gateway_workers=options.gateway_workers or min(MAX_DEFAULT_WORKERS, num_cpus),
        mirror_process=options.mirror_process,
        at_zero=AtZero(options.at_zero),
        hold_limit_s=options.hold_limit_s,
        hold_requests=options.hold_requests,
        hold_requests_each=options.hold_requests_each,
        hold_bytes=int(options.hold_mb * 1024 * 1024),
        serverless_idle_s=options.serverless_idle_s,
        metrics_bytes=int(options.metrics_mb * 1024 * 1024),
        logs_bytes=int(options.logs_mb * 1024 * 1024),
        logs_days=options.logs_days,
        log_format=options.log_format,
        copy_user=copy_user,
        drain_s=options.drain_s,
        files_bytes=int(options.files_gb * 1000**3),
        store_url=store_url,
        fleet=options.fleet,
        ray_address=options.ray_address,
        ray_runtime_env=absolute(options.ray_runtime_env),
        node_dir=absolute(options.node_dir),
        chosen_gateway_port=ports.chosen_gateway,
        chosen_s3_port=ports.chosen_s3,
    )
