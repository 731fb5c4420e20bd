"""Control groups on folders that look like the kernel's, and the texts of several machines."""

import os
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.fleet.host.cgroups import (
    CgroupParent,
    CopyGroup,
    cgroup_parents,
    hierarchies,
    make_group,
    remove_groups,
    sweep_groups,
)
from hostelry.fleet.rules.limits import CopyLimits

MIB = 2**20
LIMITS = CopyLimits(cpus=2, max_memory_bytes=512 * MIB)


def v1(folder: Path, *controllers: str) -> CgroupParent:
    return CgroupParent(folder=folder, version=1, controllers=frozenset(controllers))


def v2(folder: Path) -> CgroupParent:
    return CgroupParent(folder=folder, version=2, controllers=frozenset({"memory", "cpu", "pids"}))


def written(group: CopyGroup | None, name: str) -> str:
    assert group is not None
    return (group.folders[0] / name).read_text()


def test_version_2_keeps_memory_cpu_and_processes(tmp_path: Path) -> None:
    group = make_group([v2(tmp_path)], "c-1", LIMITS)
    assert written(group, "memory.max") == str(512 * MIB)
    assert written(group, "memory.swap.max") == "0"
    assert written(group, "memory.oom.group") == "1"
    assert written(group, "cpu.weight") == "200"
    assert int(written(group, "pids.max")) > 1000


def test_version_1_keeps_them_in_a_folder_each(tmp_path: Path) -> None:
    places = [v1(tmp_path / name, name) for name in ("memory", "cpu", "pids")]
    for place in places:
        place.folder.mkdir()
    group = make_group(places, "c-1", LIMITS)
    assert group is not None
    assert group.memory == tmp_path / "memory" / "hostelry" / "c-1"
    assert (group.memory / "memory.limit_in_bytes").read_text() == str(512 * MIB)
    assert (tmp_path / "cpu" / "hostelry" / "c-1" / "cpu.shares").read_text() == "2048"
    group.add(17)
    assert [(it / "cgroup.procs").read_text() for it in group.folders] == ["17"] * 3


def test_all_copies_together_weigh_no_more_than_the_machine(tmp_path: Path) -> None:
    make_group([v1(tmp_path, "cpu")], "c-1", CopyLimits(cpus=192))
    expected = str(1024 * (os.cpu_count() or 1))
    assert (tmp_path / "hostelry" / "cpu.shares").read_text() == expected


@cases(
    "cpus, shares",
    case("nothing reserved is an ordinary process", 0, 1024),
    case("a part of a CPU", 0.25, 256),
    case("many", 192, 196608),
    case("no more than the kernel takes", 1000, 262144),
)
def test_the_share_of_the_cpus(tmp_path: Path, cpus: float, shares: int) -> None:
    group = make_group([v1(tmp_path, "cpu")], "c-1", CopyLimits(cpus=cpus))
    assert written(group, "cpu.shares") == str(shares)


def test_without_a_limit_the_group_does_not_keep_memory(tmp_path: Path) -> None:
    group = make_group([v2(tmp_path)], "c-1", CopyLimits(cpus=1))
    assert group is not None
    assert group.memory is None
    assert group.memory_kills() == 0


def test_a_machine_that_allows_no_group_gives_none(tmp_path: Path) -> None:
    assert make_group([], "c-1", LIMITS) is None
    assert make_group([v2(tmp_path / "not there")], "c-1", LIMITS) is None
    assert make_group([v1(Path("/proc/self"), "memory")], "c-1", LIMITS) is None


@cases(
    "name, text, kills",
    case("version 2", "memory.events", "low 0\noom 4\noom_kill 3\n", 3),
    case("version 1", "memory.oom_control", "under_oom 0\noom_kill 2\n", 2),
    case("an old kernel", "memory.oom_control", "under_oom 0\n", 0),
)
def test_kills_for_the_limit_are_counted(tmp_path: Path, name: str, text: str, kills: int) -> None:
    (tmp_path / name).write_text(text)
    assert CopyGroup(folders=(tmp_path,), memory=tmp_path).memory_kills() == kills


def test_groups_are_removed_with_their_branch(tmp_path: Path) -> None:
    (tmp_path / "hostelry" / "c-1").mkdir(parents=True)
    (tmp_path / "hostelry" / "c-2").mkdir()
    remove_groups([tmp_path / "hostelry" / "c-1", tmp_path / "never"])
    assert [it.name for it in (tmp_path / "hostelry").iterdir()] == ["c-2"]
    remove_groups([tmp_path / "hostelry" / "c-2"])
    assert list(tmp_path.iterdir()) == []


def test_groups_that_were_never_removed_are_swept_once_they_are_old(tmp_path: Path) -> None:
    branch = tmp_path / "hostelry"
    for name, made_at in (("old", 1000.0), ("new", 1500.0)):
        (branch / name).mkdir(parents=True)
        os.utime(branch / name, (made_at, made_at))
    (branch / "used").mkdir()
    (branch / "used" / "cgroup.procs").write_text("17")  # as a process does, it keeps the folder
    os.utime(branch / "used", (0.0, 0.0))
    sweep_groups([v1(tmp_path, "memory"), v1(tmp_path / "no branch", "cpu")], 1000.0 + 601.0)
    assert sorted(it.name for it in branch.iterdir()) == ["new", "used"]


MINE_V1 = "9:name=systemd:/\n4:memory:/a/b\n2:cpu,cpuacct:/a\n3:cpuset:/\n0::/\n"
MINE_V2 = "0::/user.slice/x.scope\n"


def mount(folder: Path, kind: str, options: str, root: str = "/") -> str:
    return f"35 31 0:32 {root} {folder} rw,relatime - {kind} none rw,{options}\n"


def test_the_own_groups_of_version_1_are_found(tmp_path: Path) -> None:
    (tmp_path / "memory" / "a" / "b").mkdir(parents=True)
    (tmp_path / "cpu" / "a").mkdir(parents=True)
    mounts = (
        mount(tmp_path / "memory", "cgroup", "memory")
        + mount(tmp_path / "cpu", "cgroup", "cpu,cpuacct")
        + mount(tmp_path, "ext4", "memory")
    )
    found = {it.controllers: it.folder for it in hierarchies(MINE_V1, mounts)}
    assert found == {
        frozenset({"memory"}): tmp_path / "memory" / "a" / "b",
        frozenset({"cpu"}): tmp_path / "cpu" / "a",
    }


def test_the_own_group_of_version_2_is_found(tmp_path: Path) -> None:
    own = tmp_path / "user.slice" / "x.scope"
    own.mkdir(parents=True)
    [found] = hierarchies(MINE_V2, mount(tmp_path, "cgroup2", "nsdelegate"))
    assert (found.folder, found.version) == (own, 2)


@pytest.mark.parametrize("root", ["/docker/ab", "/"])
def test_a_containers_mount_is_its_own_group(tmp_path: Path, root: str) -> None:
    mounts = mount(tmp_path, "cgroup", "memory", root)
    [found] = hierarchies("4:memory:/docker/ab\n", mounts)
    assert found.folder == tmp_path


def test_version_2_is_used_where_memory_is_handed_down(tmp_path: Path) -> None:
    proc, tree = tmp_path / "proc", tmp_path / "tree"
    own = tree / "user" / "x.scope"
    own.mkdir(parents=True)
    proc.mkdir()
    (own / "cgroup.controllers").write_text("")
    (tree / "user" / "cgroup.subtree_control").write_text("cpu memory pids io\n")
    (proc / "cgroup").write_text("0::/user/x.scope\n")
    (proc / "mountinfo").write_text(mount(tree, "cgroup2", "nsdelegate"))
    assert cgroup_parents(proc) == [v2(tree / "user")]


def test_a_machine_without_cgroups_has_no_place(tmp_path: Path) -> None:
    assert cgroup_parents(tmp_path) == []
