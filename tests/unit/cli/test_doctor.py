"""Verdicts on a machine, and the disk that a home uses."""

from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.cli.doctor.checks import CHECKS, CheckVerdict, cannot_run, run_checks
from hostelry.cli.doctor.command import RUNS, RUNS_NOT, check_lines
from hostelry.cli.doctor.machine_facts import (
    EngineModules,
    HomeFacts,
    HubFacts,
    LateProblem,
    MachineFacts,
    PlatformFacts,
    PortFacts,
)
from hostelry.cli.doctor.probes import folder_bytes

GIB = 1024**3
ENGINE = EngineModules(
    torch="2.9", cuda="13.0", devices=("H100",), kernels=("avx512",), no_kernels=None
)
HOME = HomeFacts(
    path="/h", exists=True, parent="/h", is_writable=True, free_bytes=100 * GIB, open_files=()
)
HUB = HubFacts(
    url="https://hub", is_offline=False, is_reachable=True, problem=None, cached_models=0, skew_s=-1
)
PORT = PortFacts(use="gateway", port=8787, is_free=True, is_own=False)
RUNNING = PlatformFacts(running=9, version="0.1.0", answers=True)
GOOD = MachineFacts(
    version="0.1.0",
    python=(3, 11, 7),
    system="Linux",
    architecture="x86_64",
    cpus=8,
    cpu_name="EPYC",
    memory_bytes=64 * GIB,
    memory_free_bytes=32 * GIB,
    uid=0,
    copy_user_problem=None,
    max_open_files=65536,
    nvidia=("H100",),
    nvidia_driver="570",
    nvidia_devices=1,
    engine=ENGINE,
    engine_problem=None,
    cgroup_version=2,
    limited=("cpu", "memory"),
    containers="podman 5.4",
    containers_keep_limits=True,
    containers_problem=None,
    object_store="/bin/weed",
    chromium="/bin/chromium",
    runtimes=("sklearn-1.2",),
    ports=(PORT,),
    home=HOME,
    platform=RUNNING,
    hub=HUB,
)


def test_a_machine_with_everything_is_well() -> None:
    checks = run_checks(GOOD)
    assert {it.verdict for it in checks} == {CheckVerdict.OK}
    assert len({it.name for it in checks}) == len(checks) == len(CHECKS)
    assert check_lines(checks)[-1] == f"{RUNS} {len(CHECKS)} ok, 0 limited, 0 missing."


@cases(
    "changed, name, verdict, words",
    case("one CPU", {"cpus": 1}, "cpus", "limited", "take turns"),
    case("some memory", {"memory_free_bytes": 2 * GIB}, "memory", "limited", "2.0"),
    case("no memory", {"memory_free_bytes": GIB // 2}, "memory", "missing", "0.5"),
    case("some disk", {"home": replace(HOME, free_bytes=2 * GIB)}, "disk", "limited", "--home"),
    case(
        "keys that others read",
        {"home": replace(HOME, open_files=("/h/kms.key",))},
        "home",
        "limited",
        "chmod 600 /h/kms.key",
    ),
    case("devices without a driver", {"nvidia": ()}, "gpus", "missing", "driver"),
    case("no accelerator", {"nvidia": (), "nvidia_devices": 0}, "gpus", "limited", "simulated"),
    case(
        "a torch for CPUs beside an accelerator",
        {"engine": replace(ENGINE, devices=())},
        "gpus",
        "missing",
        "torch 2.9 sees no device",
    ),
    case(
        "an accelerator without triton",
        {"engine": replace(ENGINE, no_triton="triton is not installed")},
        "gpus",
        "limited",
        "triton is not installed",
    ),
    case(
        "no torch",
        {"engine": None, "engine_problem": "no module named torch"},
        "kernels",
        "missing",
        "no module named torch",
    ),
    case(
        "torch takes too long, as under load",
        {"engine": None, "engine_problem": LateProblem("torch was not imported within 60 s")},
        "kernels",
        "limited",
        "hostelry doctor again when this machine has less to do",
    ),
    case(
        "podman takes too long, as under load",
        {"containers": None, "containers_problem": LateProblem("podman does not answer")},
        "containers",
        "limited",
        "hostelry doctor again when this machine has less to do",
    ),
    case(
        "no kernels",
        {"engine": replace(ENGINE, kernels=(), no_kernels="not built")},
        "kernels",
        "limited",
        "not built",
    ),
    case("no limits", {"limited": ("pids",)}, "limits", "limited", "Delegate=yes"),
    case(
        "one user for all copies",
        {"copy_user_problem": "runs as user 7; start it as root"},
        "copy users",
        "limited",
        "-> start it as root",
    ),
    case(
        "no container engine",
        {"containers": None, "containers_problem": "podman is not installed"},
        "containers",
        "missing",
        "apt-get install podman runc",
    ),
    case("rootless v1", {"containers_keep_limits": False}, "containers", "limited", "not kept"),
    case("no runtime", {"runtimes": ()}, "runtimes", "limited", "runtimes install"),
    case("a taken port", {"ports": (replace(PORT, is_free=False),)}, "ports", "limited", "taken"),
    case("few files", {"max_open_files": 1024}, "open files", "limited", "ulimit"),
    case(
        "a hub that does not answer",
        {"hub": replace(HUB, is_reachable=False, problem="no route", skew_s=None)},
        "hub",
        "limited",
        "no route",
    ),
    case(
        "offline with an empty cache",
        {"hub": replace(HUB, is_offline=True, is_reachable=False)},
        "hub",
        "limited",
        "HF_HUB_OFFLINE",
    ),
    case("a wrong clock", {"hub": replace(HUB, skew_s=400.0)}, "clock", "limited", "refused"),
    case(
        "a platform of another version",
        {"platform": replace(RUNNING, version="0.0.9")},
        "platform",
        "limited",
        "version 0.0.9 runs",
    ),
    case(
        "a control that hangs",
        {"platform": replace(RUNNING, answers=False)},
        "platform",
        "limited",
        "does not answer",
    ),
    case("no browser", {"chromium": None}, "chromium", "limited", "tests"),
)
def test_less_than_everything_is_named_with_its_cost_and_remedy(
    changed: dict[str, Any], name: str, verdict: str, words: str
) -> None:
    checks = run_checks(replace(GOOD, **changed))
    (found,) = [it for it in checks if it.verdict is not CheckVerdict.OK]
    assert (found.name, found.verdict.value) == (name, verdict)
    assert found.costs
    text = " ".join(" ".join(check_lines(checks)).split())
    assert words in text
    assert not cannot_run(checks)


@cases(
    "changed, name",
    case("no Linux", {"system": "Darwin"}, "python"),
    case("an old Python", {"python": (3, 10, 1)}, "python"),
    case("no object store", {"object_store": None}, "object store"),
    case("a read-only home", {"home": replace(HOME, is_writable=False)}, "home"),
    case("a full disk", {"home": replace(HOME, free_bytes=1000)}, "disk"),
)
def test_hostelry_cannot_run_without(changed: dict[str, Any], name: str) -> None:
    checks = run_checks(replace(GOOD, **changed))
    assert [it.name for it in checks if it.prevents] == [name]
    assert check_lines(checks)[-1].startswith(RUNS_NOT)
    assert all(it.mend for it in checks if it.prevents)


def test_the_disk_is_shown_with_what_uses_it() -> None:
    used = {"objects": 12 * GIB, "logs": 1000, "runtimes": GIB // 2}
    checks = run_checks(replace(GOOD, home=replace(HOME, used_bytes=used)))
    (disk,) = (it for it in checks if it.name == "disk")
    assert disk.found == "100.0 GiB free at /h; used: objects 12.0, runtimes 0.5 GiB"


def test_what_a_folder_takes_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "b").hardlink_to(tmp_path / "deep" / "a")
    (tmp_path / "link").symlink_to("/")
    assert 100_000 <= folder_bytes(tmp_path) < 110_000
    assert folder_bytes(tmp_path / "none") == 0


def test_unknown_facts_are_no_fault() -> None:
    hub = replace(HUB, skew_s=None)
    (clock,) = [it for it in run_checks(replace(GOOD, hub=hub)) if it.name == "clock"]
    assert clock.verdict is CheckVerdict.OK
    stopped = PlatformFacts(running=0, version=None, answers=False)
    assert not [it for it in run_checks(replace(GOOD, platform=stopped)) if it.verdict != "ok"]


@cases(
    "platform, verdict, found",
    case(
        "a leader and two standbys",
        replace(RUNNING, standbys=2),
        CheckVerdict.OK,
        "version 0.1.0 runs, 9 processes, 2 controls on standby",
    ),
    case(
        "a leader alone on PostgreSQL",
        replace(RUNNING, standbys=0),
        CheckVerdict.LIMITED,
        "version 0.1.0 runs, and no control is on standby",
    ),
    case(
        "an election, or a database that is away",
        replace(RUNNING, standbys=1, has_leader=False),
        CheckVerdict.LIMITED,
        "no control leads",
    ),
)
def test_doctor_looks_at_the_controls(
    platform: PlatformFacts, verdict: CheckVerdict, found: str
) -> None:
    (check,) = [it for it in run_checks(replace(GOOD, platform=platform)) if it.name == "platform"]
    assert (check.verdict, check.found) == (verdict, found)
