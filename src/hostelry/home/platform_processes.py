"""The platform's own processes: which there are to be, and which run."""

import msgspec

from hostelry.base.proc import group_resident_bytes, process_stat, uptime_s
from hostelry.home.home import Home, UpConfig
from hostelry.home.run_file import AFTER_GATEWAY, live_run_file, platform_names


class PlatformProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the platform. `pid` is `None` if it is not running."""

    name: str
    pid: int | None = None
    port: int | None = None
    uptime_s: float | None = None
    memory_bytes: int | None = None


def platform_processes(home: Home, config: UpConfig) -> list[PlatformProcess]:
    """Every process of this hostelry, running or not."""
    return [platform_process(home, name) for name in list_platform_names(home, config)]


def process_uptimes(home: Home, config: UpConfig) -> dict[str, float | None]:
    """The seconds for which each process has run, or None if it does not run."""
    found: dict[str, float | None] = {}
    for name in list_platform_names(home, config):
        record = live_run_file(home, name)
        stat = process_stat(record.pid) if record is not None else None
        found[name] = None if stat is None else uptime_s(stat)
    return found


def list_platform_names(home: Home, config: UpConfig) -> list[str]:
    """The names of the processes that are to run."""
    if config.is_control_host:
        proxy = [] if config.cluster_host is None else ["proxy"]
        watcher = ["watcher"] if home.kept.exists() else []
        return ["up", *watcher, "control", "jobs", *proxy]
    if config.is_gateway_host:
        names = [*platform_names(config.gateway_workers, ("proxy", "peers", "link", "mirror"))]
    else:
        among = ("proxy", "peers") if config.peer_port else ()
        names = platform_names(config.gateway_workers, (*among, *AFTER_GATEWAY))
    if not home.kept.exists():
        names.remove("watcher")
    if config.cluster_host is None and "proxy" in names:
        names.remove("proxy")
    if not config.mirror_process:
        names.remove("mirror")
    if config.is_gateway_host:
        return names
    if not config.has_console:
        names.remove("console")
    if not config.has_own_s3:
        names.remove("objectstore")
        names.remove("s3door")
    return names


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
