"""Probes of this machine, which run at the same time, each with a time limit.

They leave nothing changed: a test control group is removed, and a test port is released.
"""

import asyncio
import contextlib
import os
import platform
import resource
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from hostelry import __version__
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError
from hostelry.base.files import expand_user
from hostelry.base.json import decode
from hostelry.base.runtimes import runtimes_folder
from hostelry.cli.doctor.machine_facts import (
    EngineModules,
    HomeFacts,
    HubFacts,
    LateProblem,
    MachineFacts,
    PlatformFacts,
    PortFacts,
)
from hostelry.fleet.host.cgroups import cgroup_parents, hierarchies, make_group
from hostelry.fleet.launch.container_engine import find_engine
from hostelry.fleet.rules.copy_user import AUTO, FIRST_NUMBER, is_offline
from hostelry.fleet.rules.devices import find_real_devices
from hostelry.fleet.rules.limits import CopyLimits
from hostelry.home.copy_user_option import decide_copy_user
from hostelry.home.home import Home, UpConfig, load_config, load_credentials
from hostelry.home.run_file import live_run_files
from hostelry.processes.objectstore import weed_binary
from hostelry.processes.open_python import open_bases
from hostelry.runtimes.install import list_runtimes

ENGINE_WITHIN_S, CONTAINERS_WITHIN_S, TOOL_WITHIN_S, HTTP_WITHIN_S = 60.0, 15.0, 5.0, 5.0
PUBLIC_HUB = "https://huggingface.co"
OTHERS_READ = 0o044
MEMORY_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
BLOCK_BYTES = 512  # the unit of st_blocks. Source: inode(7)
MOST_ENTRIES = 200_000  # below one folder. Further entries are not counted


def machine_facts(home: Home, environment: Mapping[str, str]) -> MachineFacts:
    """Run all probes, wait for the last, and return their findings."""
    config = _config(home)
    with ThreadPoolExecutor() as pool:
        engine = pool.submit(_engine)
        containers = pool.submit(_containers)
        hub = pool.submit(_hub, environment)
        nvidia = pool.submit(_nvidia)
        running = pool.submit(_platform, home, config)
        copy_user = pool.submit(_copy_user_problem, home)
    memory_bytes, free_bytes = _memory()
    modules, engine_problem = engine.result()
    found_engine, keeps_limits, containers_problem = containers.result()
    names, driver = nvidia.result()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    major, minor, micro = sys.version_info[:3]
    return MachineFacts(
        version=__version__,
        python=(major, minor, micro),
        system=platform.system(),
        architecture=platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        cpu_name=_cpu_name(),
        memory_bytes=memory_bytes,
        memory_free_bytes=free_bytes,
        uid=os.geteuid(),
        copy_user_problem=copy_user.result(),
        max_open_files=sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        nvidia=names,
        nvidia_driver=driver,
        nvidia_devices=len(find_real_devices({}, os.listdir("/dev"))),
        engine=modules,
        engine_problem=engine_problem,
        cgroup_version=_cgroup_version(),
        limited=_find_limiting_controllers(),
        containers=found_engine,
        containers_keep_limits=keeps_limits,
        containers_problem=containers_problem,
        object_store=_object_store(),
        chromium=shutil.which("chromium") or shutil.which("chromium-browser"),
        runtimes=tuple(it.name for it in list_runtimes(runtimes_folder(environment))),
        ports=_ports(home, config),
        home=_home(home, environment),
        platform=running.result(),
        hub=hub.result(),
    )


def _config(home: Home) -> UpConfig | None:
    try:
        return load_config(home)
    except (OSError, msgspec.MsgspecError, ValueError):
        return None


def _engine() -> tuple[EngineModules | None, str | None]:
    """The report of the engine's modules, or the reason why it is missing."""
    command = [sys.executable, "-P", "-m", "hostelry.cli.doctor.engine_probe"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            timeout=ENGINE_WITHIN_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return decode(done.stdout.splitlines()[-1], EngineModules), None
    except subprocess.TimeoutExpired:
        return None, LateProblem(f"torch was not imported within {ENGINE_WITHIN_S:g} s")
    except (OSError, IndexError, msgspec.MsgspecError):
        if done.returncode < 0:
            return None, LateProblem(f"torch's import was ended by signal {-done.returncode}")
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return None, f"torch cannot be imported: {''.join(last)[:200]}"


def _containers() -> tuple[str | None, bool, str | None]:
    """The container engine and whether it supports limits, or why the engine is missing."""

    async def asked() -> tuple[str | None, bool, str | None]:
        try:
            async with asyncio.timeout(CONTAINERS_WITHIN_S):
                engine = await find_engine()
        except TimeoutError:
            late = LateProblem(f"podman and docker do not answer in {CONTAINERS_WITHIN_S:g} s")
            return None, False, late
        except TerminalError as error:
            why = str(error).partition(": ")[2].partition(". ")[0]
            return None, False, why
        return f"{engine.kind} {engine.version}", engine.keeps_limits, None

    return asyncio.run(asked())


def _nvidia() -> tuple[tuple[str, ...], str | None]:
    """Names of NVIDIA devices, and the driver's version."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return (), None
    query = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(
            query, capture_output=True, text=True, timeout=TOOL_WITHIN_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return (), None
    rows = [line.rpartition(", ") for line in answer.splitlines() if ", " in line]
    return tuple(name for name, _, _ in rows), rows[0][2] if rows else None


def _copy_user_problem(home: Home) -> str | None:
    """Why copies cannot have separate users. None if they can, perhaps by another interpreter."""
    _, problem = decide_copy_user(AUTO, home)
    has_other = problem is not None and os.geteuid() == 0 and any(open_bases(FIRST_NUMBER, home))
    return None if has_other else problem


def _hub(environment: Mapping[str, str]) -> HubFacts:
    url = environment.get("HF_ENDPOINT") or PUBLIC_HUB
    cached, offline = _cached_models(environment), is_offline(environment)
    problem, skew_s = None, None
    if not offline:
        try:
            answer = httpx.head(f"{url}/api/models", timeout=HTTP_WITHIN_S, follow_redirects=False)
            sent = parsedate_to_datetime(answer.headers["date"]).timestamp()
            skew_s = SystemClock().now() - sent
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            problem = str(error)[:200] or type(error).__name__
        except (KeyError, ValueError):
            skew_s = None  # the hub answers without a date
    return HubFacts(
        url=url,
        is_offline=offline,
        is_reachable=not offline and problem is None,
        problem=problem,
        cached_models=cached,
        skew_s=skew_s,
    )


def _cached_models(environment: Mapping[str, str]) -> int:
    try:
        home = expand_user(environment.get("HF_HOME") or "~/.cache/huggingface")
        folder = expand_user(environment.get("HF_HUB_CACHE") or home / "hub")
        return sum(1 for it in folder.iterdir() if it.name.startswith("models--"))
    except (OSError, TerminalError):
        return 0


def _platform(home: Home, config: UpConfig | None) -> PlatformFacts:
    running = len(live_run_files(home))
    if not running or config is None:
        return PlatformFacts(running=running, version=None, answers=False)
    try:
        health = _ask_control(home, config, "health")
        led = _ask_control(home, config, "leader") if config.store_url else {}
    except (httpx.HTTPError, OSError, msgspec.MsgspecError):
        return PlatformFacts(running=running, version=None, answers=False)
    version, members = health.get("version"), led.get("members")
    return PlatformFacts(
        running=running,
        version=None if version is None else str(version),
        answers=True,
        has_leader=led.get("leader", "") is not None,
        standbys=None if members is None else sum(not it["leads"] for it in members),
    )


def _ask_control(home: Home, config: UpConfig, what: str) -> dict[str, Any]:
    """Control's answer. Raises httpx.HTTPError, OSError or MsgspecError if it does not answer."""
    answer = httpx.get(
        f"{config.control_url}/internal/{what}",
        headers={"X-Hostelry-Key": load_credentials(home).internal_key},
        timeout=HTTP_WITHIN_S,
        trust_env=False,
        verify=False,  # plain HTTP on loopback
    )
    answer.raise_for_status()
    return decode(answer.content, dict[str, Any])


def _memory() -> tuple[int, int]:
    """Total and free memory, within the limit of this process's container."""
    kilobytes = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        kilobytes[name] = int(rest.split()[0])
    total, free = kilobytes["MemTotal"] * 1024, kilobytes["MemAvailable"] * 1024
    for name in MEMORY_FILES:
        limit = _number(name)
        used = _number(name.replace("memory.max", "memory.current").replace("limit", "usage"))
        if limit is not None and limit < total:
            return limit, min(free, limit - (used or 0))
    return total, free


def _number(path: str) -> int | None:
    try:
        text = Path(path).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    named = (it.partition(":")[2].strip() for it in lines if it.startswith("model name"))
    return next(named, "")


def _cgroup_version() -> int | None:
    try:
        found = hierarchies(
            Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text()
        )
    except OSError:
        return None
    versions = [it.version for it in found if it.controllers or it.version == 2]
    return min(versions, default=None)


def _find_limiting_controllers() -> tuple[str, ...]:
    """The controllers that limit a test group of this process. The group is removed."""
    parents = cgroup_parents()
    limits = CopyLimits(cpus=1.0, max_memory_bytes=64 * 1024**2)
    group = make_group(parents, f"doctor-{os.getpid()}", limits)
    if group is None:
        return ()
    try:
        files = {"cpu": ("cpu.weight", "cpu.shares"), "pids": ("pids.max",)}
        held = {
            name
            for name, there in files.items()
            if any((folder / it).exists() for folder in group.folders for it in there)
        }
        return tuple(sorted(held | ({"memory"} if group.memory is not None else set())))
    finally:
        group.remove()


def _object_store() -> str | None:
    try:
        return str(weed_binary())
    except TerminalError:
        return None


def _ports(home: Home, config: UpConfig | None) -> tuple[PortFacts, ...]:
    host = "127.0.0.1" if config is None else config.host
    gateway = 8787 if config is None else config.gateway_port
    store = 8788 if config is None else config.s3_port
    own = {record.port for record in live_run_files(home)}
    return tuple(
        PortFacts(use=use, port=port, is_free=_is_free(host, port), is_own=port in own)
        for use, port in (("gateway", gateway), ("object store", store))
    )


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
        return True


def _home(home: Home, environment: Mapping[str, str]) -> HomeFacts:
    there = home.root
    while not there.exists() and there != there.parent:
        there = there.parent
    keys = (home.credentials, home.root_key)
    readable = [it for it in keys if it.exists() and it.stat().st_mode & OTHERS_READ]
    return HomeFacts(
        path=str(home.root),
        exists=home.root.is_dir(),
        parent=str(there),
        is_writable=there.is_dir() and os.access(there, os.W_OK | os.X_OK),
        free_bytes=shutil.disk_usage(there).free,
        open_files=tuple(map(str, readable)),
        used_bytes=disk_use(home, environment),
    )


def disk_use(home: Home, environment: Mapping[str, str]) -> dict[str, int]:
    """Bytes on the disk, by purpose."""
    return {
        "objects": folder_bytes(home.objects),
        "instances with their caches": folder_bytes(home.instances),
        "files of batches": folder_bytes(home.files),
        "captured requests": folder_bytes(home.capture),
        "log events": folder_bytes(home.log_events),
        "audit log": folder_bytes(home.audit),
        "logs": folder_bytes(home.logs),
        "runtimes": folder_bytes(runtimes_folder(environment)),
    }


def folder_bytes(place: Path) -> int:
    """Bytes on the disk of a file, or of a folder with its contents. 0 if it does not exist."""
    waiting, left, total = [place], MOST_ENTRIES, 0
    seen = set[tuple[int, int]]()
    while waiting and left > 0:
        path = waiting.pop()
        left -= 1
        with contextlib.suppress(OSError):
            found = path.lstat()
            if stat.S_ISDIR(found.st_mode):
                waiting += path.iterdir()
            elif (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                total += found.st_blocks * BLOCK_BYTES
    return total
