"""Digest of a service: the program's version and the configuration that the service reads.

A new supervisor adopts a process with the present digest, and replaces any other process.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import hostelry
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.up_options import find_fields_read_by

# Configuration that services do not read. If a name is missing here, too much is replaced.
UP_ONLY, GATEWAY_ONLY, JOBS_ONLY = map(find_fields_read_by, ("up", "gateway", "jobs"))
CONTROL_ONLY = find_fields_read_by("control") | {"copy_user_problem"}
NO_CONSOLE = frozenset({"console_port"})
NOT_READ: Mapping[str, frozenset[str]] = {
    "control": GATEWAY_ONLY | JOBS_ONLY | NO_CONSOLE,
    "gateway": CONTROL_ONLY - {"pace"} | JOBS_ONLY,  # it paces the objects of data capture
    "mirror": GATEWAY_ONLY - {"gateway_workers"} | CONTROL_ONLY - {"pace"} | JOBS_ONLY | NO_CONSOLE,
    "jobs": GATEWAY_ONLY | CONTROL_ONLY | NO_CONSOLE,
    "peers": GATEWAY_ONLY - {"gateway_workers"} | CONTROL_ONLY | JOBS_ONLY | NO_CONSOLE,
    "link": GATEWAY_ONLY | CONTROL_ONLY | JOBS_ONLY | NO_CONSOLE,
    "console": GATEWAY_ONLY | CONTROL_ONLY | JOBS_ONLY,
}


@cache
def program_stamp() -> str:
    """Digest of this installation: its version, and size and mtime of each source file."""
    package = Path(hostelry.__file__).parent
    found = hashlib.sha256(f"{hostelry.__version__} {package}".encode())
    for path in sorted(package.rglob("*.py")):
        stat = path.stat()
        found.update(f"{path} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return found.hexdigest()


def service_digest(kind: str, config: UpConfig, credentials: Credentials) -> str:
    """The digest of one of our own services. `kind` is a key of `NOT_READ`."""
    read = {
        k: v for k, v in dataclasses.asdict(config).items() if k not in NOT_READ[kind] | UP_ONLY
    }
    return digest(kind, read, msgspec.structs.asdict(credentials))


def identify_program(binary: Path) -> tuple[str, int, int]:
    """The identity of a program file: its path, size and mtime."""
    stat = binary.stat()
    return str(binary), stat.st_size, stat.st_mtime_ns


def digest(*parts: Any) -> str:
    """The digest of this program and of `parts`, which JSON can express."""
    found = hashlib.sha256(program_stamp().encode())
    found.update(msgspec.json.encode(parts, enc_hook=str, order="deterministic"))
    return found.hexdigest()
