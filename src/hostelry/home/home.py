"""The home folder of one hostelry, and the files that its processes share.

docs/architecture.md section 5 draws the folder. Only composition roots and the CLI read it.
"""

import hashlib
import os
import secrets
import string
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from hostelry.aws.temporary_keys import agents_key
from hostelry.base.errors import TerminalError
from hostelry.base.files import expand_user, user_folder, write_whole
from hostelry.base.json import convert, decode
from hostelry.base.logging import TEXT
from hostelry.domain.at_zero import AtZero
from hostelry.domain.role import build_role_arn
from hostelry.fleet.rules.copy_user import CopyUser
from hostelry.home.ports import url_host
from hostelry.home.settings import SharedSettings

ENVIRONMENT_VARIABLE = "HOSTELRY_HOME"
# The service's run file without its suffix: `/home/run/gateway-1`.
SERVICE_VARIABLE = "HOSTELRY_SERVICE"
# Bytes that the variable has in an interpreter, whose forks write their own value there.
MARK_ROOM = 4096
# Fields of `UpConfig` under other names in config.json, which homes of older versions have.
NAME_HOME = f"name a folder with --home or {ENVIRONMENT_VARIABLE}"
STORED_NAMES = {"gateway_port": "door_port", "chosen_gateway_port": "chosen_door_port"}


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Keys of one hostelry, made at the first `up`. The file has mode 0600.

    `role_name` is the assumed role of sts:GetCallerIdentity, which iam:GetRole finds. On a node of
    agents alone `cluster` names the cluster, and the keys come from `for_agent`.
    """

    account_id: str
    region: str
    access_key_id: str
    secret_access_key: str
    internal_key: str
    openai_api_key: str
    role_name: str = "HostelryExecutionRole"
    cluster: str = ""

    @property
    def role_arn(self) -> str:
        """ARN of the execution role that programs look up and pass to CreateModel."""
        return build_role_arn(self.account_id, self.role_name)

    @property
    def cluster_id(self) -> str:
        """The id of all homes that share the internal key, of which it shows nothing."""
        if self.cluster:
            return self.cluster
        return hashlib.sha256(b"hostelry cluster " + self.internal_key.encode()).hexdigest()[:16]

    @property
    def agents_key(self) -> str:
        """The key of calls to agents on other nodes, and of the keys that these issue."""
        return self.internal_key if self.cluster else agents_key(self.internal_key)

    def for_agent(self, *, has_own_s3: bool) -> "Credentials":
        """What a node of agents alone is given: no key of the account, of gateways or of control.

        The embedded object store takes keys that the agent issues. Any other one knows only the
        account's own, which the agent then has.
        """
        kept = self if not has_own_s3 else replace(self, access_key_id="", secret_access_key="")
        return replace(
            kept, internal_key=self.agents_key, cluster=self.cluster_id, openai_api_key=""
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpConfig(SharedSettings):
    """Configuration of a platform, which every process of it reads from config.json.

    Ports are on `host`. `s3_endpoint` None means the embedded object store on `s3_port`.
    """

    gateway_port: int = 8787
    s3_port: int = 8788
    control_port: int
    jobs_port: int = 0  # 0: no process for jobs
    console_port: int = 0  # 0: no console
    first_s3_url: str = ""  # of the embedded object store, on a host with gateways alone
    max_body_bytes: int = 25 * 1024 * 1024
    artifact_cache_bytes: int = 50 * 1000**3  # per instance
    gateway_workers: int = 1
    max_connections: int = 10_000  # of clients, per gateway worker
    unproven_bytes: int = 512 * 1024 * 1024  # buffered for requests that are not authenticated yet
    at_zero: AtZero = AtZero.HOLD  # unless a tag chooses otherwise
    hold_bytes: int = 256 * 1024 * 1024
    metrics_bytes: int = 256 * 1024 * 1024  # of memory, in control
    logs_bytes: int = 1024 * 1024 * 1024  # of log events on disk
    audit_bytes: int = 1024 * 1024 * 1024  # of the audit log
    copy_user: CopyUser | None = None  # of copies that are programs. None: Hostelry's own user
    copy_user_problem: str | None = None  # the reason for None, and the remedy
    files_bytes: int = 20 * 1000**3  # of an account's files of OpenAI's API
    cluster_host: str | None = None  # where other hosts reach the node proxy. None: nowhere
    cluster_port: int = 0
    tls_ca: str | None = None  # the operator's own files, instead of Hostelry's authority
    tls_cert: str | None = None
    tls_key: str | None = None
    https_cert: str | None = None  # for clients of gateway and S3 port. None: plain HTTP
    https_key: str | None = None
    https_ca: str | None = None  # a bundle with its authority. None: a public authority
    https_host: str = ""  # the name in URLs, which the certificate is for
    store_url: str | None = field(default=None, repr=False)  # of PostgreSQL. None: the home's file
    peer_port: int = 0  # where other hosts' gateways send counts to. 0: no other host
    host_id: str = ""  # of this host in its cluster. Empty: it is the only host
    host_name: str = ""  # the name that this host has joined under. Empty: it is a first host
    peer_address: str = ""  # of `peer_port`, as other hosts reach it. Empty: on loopback
    controls: tuple[str, ...] = ()  # known addresses of controls, on a host without control
    ray_runtime_env: str | None = None  # a file
    node_dir: str | None = None  # of instances on Ray nodes. None: in the temporary folder
    chosen_gateway_port: int | None = None  # of the next start. None: the default
    chosen_s3_port: int | None = None

    @property
    def gateway_url(self) -> str:
        """The gateway, as the platform's own programs on this machine reach it."""
        return f"http://{url_host(self.host)}:{self.gateway_port}"

    @property
    def client_url(self) -> str:
        """The gateway, as clients reach it."""
        return self._build_secure_url(self.gateway_port) or self.gateway_url

    @property
    def client_s3_url(self) -> str:
        """The object store, as clients reach it."""
        return self._other_s3 or self._build_secure_url(self.s3_port) or self.s3_url

    @property
    def _other_s3(self) -> str:
        return self.s3_endpoint or self.first_s3_url

    def _build_secure_url(self, port: int) -> str | None:
        return f"https://{url_host(self.https_host)}:{port}" if self.https_cert else None

    @property
    def control_url(self) -> str:
        """Control, for the other processes of this hostelry only."""
        return f"http://127.0.0.1:{self.control_port}"

    @property
    def control_address(self) -> str:
        """Control, for all hosts of the cluster, or `control_url` if this is the only host."""
        if self.cluster_host is None:
            return self.control_url
        return f"https://control@{url_host(self.cluster_host)}:{self.cluster_port}"

    @property
    def is_gateway_host(self) -> bool:
        """Whether this host has gateways alone, of a platform whose control is elsewhere."""
        return bool(self.controls)

    @property
    def is_control_host(self) -> bool:
        """Whether this host has control alone, of a platform on several hosts."""
        return self.gateway_workers == 0

    @property
    def copies_proxy(self) -> str | None:
        """An address on the host of copies that report loopback, or None for this host."""
        return next((it for it in self.controls if it.startswith("https://")), None)

    @property
    def peers_url(self) -> str:
        """The process that exchanges counts with other hosts, for this hostelry's processes."""
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def jobs_url(self) -> str:
        """The process for jobs, for the other processes of this hostelry only."""
        return f"http://127.0.0.1:{self.jobs_port}"

    @property
    def console_address(self) -> str:
        """The console's process, for the other processes of this hostelry only."""
        return f"http://127.0.0.1:{self.console_port}"

    @property
    def has_console(self) -> bool:
        """Whether the platform serves a console, at the gateway's ``/console``."""
        return self.console_port != 0

    @property
    def console_url(self) -> str:
        """The console, as a browser reaches it."""
        return f"{self.client_url}/console"

    @property
    def has_own_s3(self) -> bool:
        """Whether the object store is the embedded one, behind the S3 proxy on `s3_port`."""
        return self.s3_endpoint is None

    @property
    def s3_url(self) -> str:
        """The object store, as the platform's own programs on this machine reach it."""
        return self._other_s3 or f"http://{url_host(self.host)}:{self.s3_port}"


class Home(msgspec.Struct, frozen=True):
    """Paths under one hostelry's home folder."""

    root: Path

    @classmethod
    def default(cls) -> "Home":
        """``$HOSTELRY_HOME``, or ``~/.hostelry``. Raises TerminalError without a ``~``."""
        given = os.environ.get(ENVIRONMENT_VARIABLE)
        return cls(expand_user(given) if given else user_folder(".hostelry", NAME_HOME))

    @property
    def credentials(self) -> Path:
        """The keys, with mode 0600."""
        return self.root / "credentials.json"

    @property
    def python(self) -> Path:
        """An environment over another interpreter, if root's own is closed to copies' users."""
        return self.root / "python"

    @property
    def config(self) -> Path:
        """The `UpConfig` of the running (or last) `up`."""
        return self.root / "config.json"

    @property
    def state(self) -> Path:
        """The store's SQLite file."""
        return self.root / "state.db"

    @property
    def cut_off_copy(self) -> Path:
        """Present while `hostelry store copy` replaces the home's files, or was cut off in that."""
        return self.root / "store-copy.unfinished"

    @property
    def cut_off_restore(self) -> Path:
        """Present while `hostelry up --from` restores the home, or was cut off in that."""
        return self.root / "restore.unfinished"

    @property
    def backup_cut(self) -> Path:
        """Links to the files that `hostelry backup` copies."""
        return self.root / "backup.cut"

    @property
    def messages(self) -> Path:
        """The SQLite file of messages of topics and queues."""
        return self.root / "messages.db"

    @property
    def metrics(self) -> Path:
        """The folder of the metrics' journal."""
        return self.root / "metrics"

    @property
    def root_key(self) -> Path:
        """The key that seals the material of KMS keys, with mode 0600."""
        return self.root / "kms.key"

    @property
    def tls(self) -> Path:
        """Certificates of this host, if it belongs to a cluster (`base.tls.TlsFolder`)."""
        return self.root / "tls"

    @property
    def https_ca(self) -> Path:
        """The authorities that clients trust, where an own one has signed --https-cert."""
        return self.root / "https-ca.pem"

    @property
    def routes(self) -> Path:
        """The gateway's last routes."""
        return self.root / "routes.json"

    @property
    def principals(self) -> Path:
        """The principals that gateways and the S3 port know."""
        return self.root / "principals.json"

    @property
    def counts(self) -> Path:
        """Counts of requests in flight, in memory that the gateway's workers share."""
        return self.run / "counts"

    @property
    def sessions(self) -> Path:
        """The copy of each session, in memory that the gateway's workers share."""
        return self.run / "sessions"

    @property
    def adapter_places(self) -> Path:
        """The copies that adapters are on, in memory that the gateway's workers share."""
        return self.run / "adapter-places"

    @property
    def mirror(self) -> Path:
        """The Unix socket where the mirror process takes requests from gateway workers."""
        return self.run / "mirror-requests.sock"

    @property
    def images(self) -> Path:
        """The operator's own image rules, if any."""
        return self.root / "images.toml"

    @property
    def prices(self) -> Path:
        """The operator's prices, if any."""
        return self.root / "prices.toml"

    @property
    def actions(self) -> Path:
        """The operator's own addresses for the actions of alarms, if any."""
        return self.root / "actions.toml"

    @property
    def run(self) -> Path:
        """One file per live process, and what processes share while they run."""
        return self.root / "run"

    @property
    def kept(self) -> Path:
        """Present while a killed `up` is to be started again."""
        return self.run / "kept"

    @property
    def known_controls(self) -> Path:
        """The last known addresses of all controls. Absent for a single control."""
        return self.root / "controls.json"

    @property
    def draining(self) -> Path:
        """Present while the gateway serves, and a load balancer is to send nothing more to it."""
        return self.run / "draining"

    @property
    def up_lock(self) -> Path:
        """Held by the one `up` of this home for its life."""
        return self.run / "up.lock"

    @property
    def object_events(self) -> Path:
        """The SQLite file of the S3 port: notification configurations, and events to report."""
        return self.root / "object-events.db"

    @property
    def jobs(self) -> Path:
        """The SQLite file of asynchronous requests and batches."""
        return self.root / "jobs.db"

    @property
    def files(self) -> Path:
        """The files of OpenAI's API: inputs and outputs of batches."""
        return self.root / "files"

    @property
    def jobs_routes(self) -> Path:
        """The last routes of the process for jobs."""
        return self.root / "jobs-routes.json"

    @property
    def jobs_lock(self) -> Path:
        """Held by the one process for jobs."""
        return self.run / "jobs.lock"

    @property
    def aiperf(self) -> Path:
        """Files of AIPerf while it sends the load of AI benchmark jobs."""
        return self.root / "aiperf"

    @property
    def console_sessions(self) -> Path:
        """Digests of the console's sessions and sign-in links, with mode 0600."""
        return self.root / "console-sessions.json"

    @property
    def host(self) -> Path:
        """The name by which other hosts know this home's processes."""
        return self.root / "host"

    @property
    def capture(self) -> Path:
        """Captured requests that are not uploaded yet, one folder per gateway worker."""
        return self.root / "capture"

    @property
    def audit(self) -> Path:
        """The folder of the audit trail."""
        return self.root / "audit"

    @property
    def audit_head(self) -> Path:
        """The newest record of an audit trail in PostgreSQL."""
        return self.root / "audit-head"

    @property
    def former_audit(self) -> Path:
        """The acts that versions before the audit trail noted."""
        return self.root / "audit.jsonl"

    @property
    def logs(self) -> Path:
        """One log per process."""
        return self.root / "logs"

    @property
    def log_events(self) -> Path:
        """The SQLite file of log events: the output of copies, and what programs put."""
        return self.root / "logs.db"

    @property
    def objects(self) -> Path:
        """The embedded object store's data."""
        return self.root / "objects"

    @property
    def instances(self) -> Path:
        """One folder per ML instance of the local fleet."""
        return self.root / "instances"

    def make(self) -> None:
        """Create the folder tree, private to its owner."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self.run, self.logs, self.objects, self.instances, self.capture):
            folder.mkdir(mode=0o700, exist_ok=True)


def make_home(root: Path) -> Home:
    """The home, created if missing. Raises TerminalError if it cannot be used."""
    home = Home(root)
    try:
        home.make()
    except OSError as error:
        raise TerminalError(f"the home folder {root} cannot be used: {error}") from None
    return home


def new_credentials(
    account_id: str,
    region: str,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
) -> Credentials:
    """Make new keys. A given AWS key pair is kept, for an object store that knows it already."""
    letters = string.ascii_uppercase + string.digits
    return Credentials(
        account_id=account_id,
        region=region,
        access_key_id=access_key_id or "AKIA" + "".join(secrets.choice(letters) for _ in range(16)),
        secret_access_key=secret_access_key or secrets.token_urlsafe(30),
        internal_key=secrets.token_urlsafe(32),
        openai_api_key="sk-hostelry-" + secrets.token_urlsafe(24),
    )


def save_credentials(home: Home, credentials: Credentials) -> None:
    """Store the keys with mode 0600."""
    write_whole(home.credentials, msgspec.json.encode(credentials))


def load_credentials(home: Home) -> Credentials:
    """The stored keys. Raises FileNotFoundError before the first `up`."""
    return decode(home.credentials.read_bytes(), Credentials)


def save_config(home: Home, config: UpConfig) -> None:
    """Store the configuration."""
    stored = {STORED_NAMES.get(name, name): it for name, it in asdict(config).items()}
    write_whole(home.config, msgspec.json.encode(stored))


def log_format(home: Home) -> str:
    """The format of the processes' logs. Text if the configuration cannot be read."""
    try:
        return load_config(home).log_format
    except (OSError, msgspec.MsgspecError):
        return TEXT


def load_config(home: Home) -> UpConfig:
    """The stored configuration. Raises FileNotFoundError before the first `up`."""
    stored = decode(home.config.read_bytes(), dict[str, Any])
    names = {old: name for name, old in STORED_NAMES.items()}
    return convert({names.get(key, key): it for key, it in stored.items()}, UpConfig)
