import gc
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from time import process_time

import pytest
from tests.cases import case, cases

from hostelry.base.proc import ProcessIdentity, parse_tcp, socket_inodes
from hostelry.domain.copy import GpuUse
from hostelry.fleet.host.processes import own_identity
from hostelry.fleet.host.usage import (
    TOOL,
    MemoryUse,
    bound_held_bytes,
    count_connections,
    cpu_seconds,
    gpu_uses,
    memory_use,
    open_connections,
    parse_gpu_uses,
    remove_written,
    select_gpu_uses,
    written_bytes,
)


def test_a_process_that_works_has_used_more() -> None:
    before, began_s = cpu_seconds([own_identity()]), process_time()
    while process_time() < began_s + 0.2:
        sum(range(10_000))
    # The kernel counts user and system time in ticks of 10 ms, rounded down.
    assert cpu_seconds([own_identity()]) > before + 0.15


def test_a_process_holds_no_more_than_its_bound() -> None:
    use = memory_use([own_identity()])
    assert 0 < use.held_bytes <= bound_held_bytes([own_identity()])
    assert use.resident_bytes > 2**20


def test_a_process_that_is_gone_has_used_nothing() -> None:
    gone = ProcessIdentity(pid=2**22 + 1, start_ticks=1, boot_id="another")
    assert cpu_seconds([gone]) == 0.0
    assert memory_use([gone]) == MemoryUse()
    assert bound_held_bytes([gone]) == 0


FIRST = GpuUse(device="0", busy_percent=37.0, memory_percent=25.0)
TEXT = "0, GPU-a1, 37, 20480, 81920\n1, GPU-b2, 0, 0, 81920\n"


def test_a_device_is_known_by_its_number_and_its_uuid() -> None:
    found = parse_gpu_uses(TEXT)
    assert found["0"] == found["GPU-a1"] == FIRST
    assert select_gpu_uses(("GPU-a1",), found) == (FIRST,)
    assert select_gpu_uses(("7",), found) == ()


@pytest.mark.parametrize(
    "line",
    ["0, GPU-a1, [N/A], 20480, 81920", "0, GPU-a1, 37, 1, 0", "No devices were found", "", "0, x"],
)
def test_a_device_that_reports_nothing_is_left_out(line: str) -> None:
    assert parse_gpu_uses(line) == {}


@cases(
    "script, devices",
    case("a tool that tells", f"printf '{TEXT}'", {"0", "1", "GPU-a1", "GPU-b2"}),
    case("a driver in trouble", "exit 9", set()),
    case("no tool", None, set()),
)
def test_the_tool_is_asked_where_there_is_one(
    script: str | None, devices: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        tool = tmp_path / TOOL
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}")
    assert set(gpu_uses()) == devices


MIB = 2**20
AGENTS = ("copy.json", "model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy's folder with the agent's files in it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(bytes(MIB))
    (tmp_path / "copy.json").write_bytes(bytes(MIB))
    (tmp_path / "log").write_bytes(bytes(8192))
    return tmp_path


def test_what_a_copy_wrote_counts_wherever_it_is_in_its_folder(folder: Path) -> None:
    assert written_bytes(folder, [], AGENTS) == 8192, "the log"
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "work" / "deep" / "file").write_bytes(bytes(MIB))
    (folder / "work" / "model").write_bytes(bytes(MIB))
    (folder / "again").hardlink_to(folder / "work" / "model")
    written = written_bytes(folder, [], AGENTS)
    assert 2 * MIB + 8192 <= written < 2.1 * MIB, "what is linked twice takes room once"


def test_nothing_outside_counts(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "large").write_bytes(bytes(MIB))
    (folder / "work").symlink_to(outside, target_is_directory=True)
    assert written_bytes(folder, [], AGENTS) < MIB


def test_a_file_that_was_unlinked_and_is_open_still_counts(folder: Path) -> None:
    gc.collect()  # earlier tests of this process may have left such files, too
    others = written_bytes(folder, [own_identity()], AGENTS)
    with (folder / "hidden").open("wb", buffering=0) as hidden:
        hidden.write(bytes(MIB))
        (folder / "hidden").unlink()
        assert written_bytes(folder, [own_identity()], AGENTS) >= others + MIB
    assert written_bytes(folder, [own_identity()], AGENTS) < others + MIB


def test_empty_files_take_room_too(folder: Path) -> None:
    for number in range(100):
        (folder / str(number)).touch()
    assert written_bytes(folder, [], AGENTS) >= 100 * 4096


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert written_bytes(tmp_path / "gone", [], AGENTS) == 0
    remove_written(tmp_path / "gone", AGENTS)


def test_what_it_wrote_is_removed_and_the_rest_stays(folder: Path) -> None:
    (folder / "work" / "deep").mkdir(parents=True)
    (folder / "work" / "deep" / "file").touch()
    (folder / "core").touch()
    (folder / "link").symlink_to(folder / "model", target_is_directory=True)
    remove_written(folder, AGENTS)
    assert sorted(os.listdir(folder)) == ["copy.json", "log", "model"]
    assert (folder / "model" / "weights").stat().st_size == MIB


ROW = "{n}: {there}:{local:04X} {there}:{to:04X} {state} 0:0 00:0 0 0 0 {inode} 1 0"
LOOPBACK, OUTSIDE = "0100007F", "0200000A"  # as proc(5) has them on a little-endian machine
MAPPED = "0000000000000000FFFF0000" + LOOPBACK  # ::ffff:127.0.0.1


def row(
    to: int,
    *,
    local: int = 40_000,
    state: str = "01",
    inode: int = 7,
    there: str = LOOPBACK,
) -> str:
    return ROW.format(n=0, local=local, to=to, state=state, inode=inode, there=there)


@cases(
    "lines, own, expected",
    case("an empty table has none", [], set(), {8080: 0}),
    case("clients' ends are counted", [row(8080), row(8080)], set(), {8080: 2}),
    case("the copy's own end is not", [row(40_000, local=8080)], set(), {8080: 0}),
    case("nor what this process holds", [row(8080, inode=9)], {9}, {8080: 0}),
    case(
        "nor what is not established any more or yet",
        [row(8080, state=it) for it in ("02", "06", "08", "0A")],
        set(),
        {8080: 0},
    ),
    case("nor what leads elsewhere", [row(9090)], set(), {8080: 0}),
    case(
        "nor a caller on another machine whose own port has the copy's number",
        [row(8080, local=443, there=OUTSIDE)],
        set(),
        {8080: 0},
    ),
    case("nor one that comes by IPv6", [row(8080, there="0" * 24 + "02000000")], set(), {8080: 0}),
    case("IPv4 by an IPv6 socket is", [row(8080, there=MAPPED)], set(), {8080: 1}),
    case("a torn line is no connection", ["", "0: torn"], set(), {8080: 0}),
)
def test_connections_are_counted_by_port(
    lines: list[str], own: set[int], expected: Mapping[int, int]
) -> None:
    sockets = parse_tcp("\n".join(["  sl  local_address", *lines]))
    assert count_connections(sockets, expected, own) == expected


def test_own_connections_are_left_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            assert open_connections([port]) == {port: 0}
            assert client.fileno() >= 0
            assert socket_inodes(os.getpid())
