import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base import proc
from hostelry.base.proc import CpuTimes, ProcessStat

NO_PID = 2**22 + 1  # one more than the kernel's largest pid


@cases(
    "command",
    case("an ordinary name", "python"),
    case("a name that imitates the fields after it", "a b) S 1 (c"),
)
def test_parse_stat(command: str) -> None:
    rest = " ".join(str(number) for number in range(7, 52))
    assert proc.parse_stat(f"42 ({command}) R 7 42 43 0 -1 {rest}".encode()) == ProcessStat(
        pid=42,
        state="R",
        group=42,
        session=43,
        cpu_ticks=12 + 13 + 14 + 15,
        num_threads=18,
        start_ticks=20,
        environment_at=48,
    )


def test_this_process_is_alive_under_its_own_start_only() -> None:
    stat = proc.process_stat(os.getpid())
    assert stat is not None
    assert (stat.group, stat.session) == (os.getpgid(0), os.getsid(0))
    assert stat.pid in {it.pid for it in proc.processes()}
    assert proc.is_same_process(stat.pid, stat.start_ticks)
    assert not proc.is_same_process(stat.pid, stat.start_ticks - 1)
    assert proc.uptime_s(stat) >= 0
    assert proc.resident_bytes(stat.pid) > 1024 * 1024


def test_a_pid_of_no_process_reads_as_nothing() -> None:
    assert proc.process_stat(NO_PID) is None
    assert proc.resident_bytes(NO_PID) == 0
    assert proc.environment_value(NO_PID, "PATH") is None
    assert proc.sizes(f"{NO_PID}/status") == {}
    assert proc.open_files(NO_PID) == []
    assert proc.socket_inodes(NO_PID) == set()


def test_a_zombie_is_no_living_process() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert proc.process_stat(child.pid) is None


def test_a_failure_of_the_reader_does_not_pass_for_the_end_of_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / str(os.getpid()) / "stat").mkdir(parents=True)  # cannot be opened as a file
    monkeypatch.setattr(proc, "PROC", tmp_path)
    with pytest.raises(IsADirectoryError):
        proc.process_stat(os.getpid())


def test_variables_are_those_that_a_process_was_started_with() -> None:
    environment = {"FIRST": "a=b", "SECOND": ""}
    program = ["/bin/sh", "-c", "echo; read line"]  # its line shows that it has its variables
    pipe = subprocess.PIPE
    with subprocess.Popen(program, env=environment, stdin=pipe, stdout=pipe) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            assert proc.environment_value(child.pid, "FIRST") == "a=b"
            assert proc.environment_value(child.pid, "SECOND") == ""
            assert proc.environment_value(child.pid, "ECOND") is None
        finally:
            child.kill()


def test_a_listening_socket_is_found_by_its_inode() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        own = proc.socket_inodes(os.getpid())
        [found] = [it for it in proc.tcp_sockets() if it.local_port == port and it.inode in own]
        assert found.state == proc.LISTENING


def test_cpu_times_are_those_of_all_cpus_without_virtual_machines() -> None:
    text = b"cpu  60 0 20 15 5 0 0 0 7 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n"
    assert proc.parse_cpu_times(text) == CpuTimes(total=100, idle=20)
    assert proc.cpu_times().total > proc.cpu_times().idle > 0


def test_facts_of_the_machine_are_read() -> None:
    assert proc.boot_id()
    assert proc.oom_kills() >= 0


def test_a_process_that_has_no_cpu_waits_for_one() -> None:
    spin = [sys.executable, "-c", "while True: pass"]
    one_cpu = {min(os.sched_getaffinity(0))}
    with contextlib.ExitStack() as stack:
        spinning = [stack.enter_context(subprocess.Popen(spin)) for _ in range(2)]
        for process in spinning:
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, one_cpu)
        while min(proc.cpu_wait_s(it.pid) for it in spinning) < 0.05:
            assert all(it.poll() is None for it in spinning)
    assert proc.cpu_wait_s(spinning[0].pid) == 0.0, "there is no such process"
    assert proc.sizes("meminfo")[b"MemTotal"] > 2**20


def test_a_sum_of_sizes_is_that_of_the_lines_which_are_there() -> None:
    names, path = (b"VmPeak", b"RssShmem", b"Rss", b"NoSuchName"), f"{os.getpid()}/status"
    found = proc.sizes(path)
    assert found[b"VmPeak"] > 0
    assert proc.size_sum(path, names) == found[b"VmPeak"] + found[b"RssShmem"]
    assert proc.size_sum(f"{NO_PID}/status", names) == 0
    assert proc.effective_capabilities() >= 0
