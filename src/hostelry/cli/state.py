"""State of a platform for commands: its processes, and control's state."""

from dataclasses import dataclass
from typing import Any

import msgspec

from hostelry.base.json import decode
from hostelry.base.proc import group_resident_bytes, process_stat, uptime_s
from hostelry.server.home import Credentials, Home, UpConfig
from hostelry.server.run_file import live_run_file, platform_names

TIMEOUT_S = 5.0
MAX_BATCHES = 100  # the newest ones, among which those that have not ended are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformProcess:
    """One process of the platform; `pid` None when it is not running."""

    name: str
    pid: int | None = None
    port: int | None = None
    uptime_s: float | None = None
    memory_bytes: int | None = None


def platform_processes(home: Home, config: UpConfig) -> list[PlatformProcess]:
    """Every process of this hostelry, running or not."""
    names = platform_names(config.gateway_workers)
    if not home.kept.exists():
        names.remove("watcher")
    if not config.mirror_process:
        names.remove("mirror")
    if not config.has_console:
        names.remove("console")
    if not config.has_own_s3:
        names.remove("objectstore")
        names.remove("s3door")
    return [platform_process(home, name) for name in names]


def platform_process(home: Home, name: str) -> PlatformProcess:
    """One process, running or not."""
    record = live_run_file(home, name)
    stat = process_stat(record.pid) if record is not None else None
    if record is None or stat is None:
        return PlatformProcess(name=name)
    return PlatformProcess(
        name=name,
        pid=record.pid,
        port=record.port,
        uptime_s=uptime_s(stat),
        memory_bytes=group_resident_bytes(stat.group),
    )


def control_state(config: UpConfig, credentials: Credentials) -> dict[str, Any] | None:
    """The state that control reports; None while it does not answer."""
    return _document(f"{config.control_url}/internal/state", credentials)


def jobs_trouble(config: UpConfig, credentials: Credentials) -> str | None:
    """Why the jobs process cannot write its file; None where it can, or does not answer."""
    found = _document(f"{config.jobs_url}/internal/health", credentials) or {}
    return found.get("trouble")


def unfinished_batches(config: UpConfig, credentials: Credentials) -> list[dict[str, Any]]:
    """Batches of OpenAI's API that have not ended; none where the jobs process does not answer."""
    found = _document(f"{config.jobs_url}/internal/jobs?limit={MAX_BATCHES}", credentials) or {}
    return [it for it in found.get("batches", ()) if it["ended_at"] is None]


def _document(url: str, credentials: Credentials) -> dict[str, Any] | None:
    """The JSON object at `url`; None where there is none."""
    import httpx  # a third of the time that completing a name takes

    try:
        answer = httpx.get(
            url,
            headers={"X-Hostelry-Key": credentials.internal_key},
            timeout=TIMEOUT_S,
            trust_env=False,
            verify=False,  # plain HTTP on loopback; reading certificates takes 30 ms of CPU
        )
        answer.raise_for_status()
        found: dict[str, Any] = decode(answer.content, dict[str, Any])
    except (httpx.HTTPError, msgspec.DecodeError):
        return None
    return found
