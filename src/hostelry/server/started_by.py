"""What a service was started by, as one digest: the program's version and what it reads at start.

A process whose digest is that of today may go on under another supervisor; any other is replaced.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import hostelry
from hostelry.server.home import Credentials, UpConfig

# What a service does not read of the configuration. What is missing here only replaces too much.
DOOR_ALONE = frozenset(
    {
        "gateway_workers",
        "hold_limit_s",
        "hold_requests",
        "hold_requests_each",
        "hold_bytes",
        "insecure_no_auth",
    }
)
CONTROL_ALONE = frozenset({"pace", "metrics_bytes", "artifact_cache_bytes", "copy_user"})
NOT_READ: Mapping[str, frozenset[str]] = {"control": DOOR_ALONE, "gateway": CONTROL_ALONE}


@cache
def program_stamp() -> str:
    """This installation: its version, and size and time of change of each of its source files."""
    package = Path(hostelry.__file__).parent
    found = hashlib.sha256(f"{hostelry.__version__} {package}".encode())
    for path in sorted(package.rglob("*.py")):
        stat = path.stat()
        found.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return found.hexdigest()


def service_digest(kind: str, config: UpConfig, credentials: Credentials) -> str:
    """The digest of one of our own services: `control` or `gateway`."""
    read = {k: v for k, v in asdict(config).items() if k not in NOT_READ[kind]}
    return digest(kind, read, asdict(credentials))


def program_of(binary: Path) -> tuple[str, int, int]:
    """Which installed program a file is: its path, size and time of change."""
    stat = binary.stat()
    return str(binary), stat.st_size, stat.st_mtime_ns


def digest(*parts: Any) -> str:
    """The digest of this program and `parts`, each of which JSON can express."""
    found = hashlib.sha256(program_stamp().encode())
    found.update(msgspec.json.encode(parts, enc_hook=str, order="deterministic"))
    return found.hexdigest()
