"""A process that was forked for one copy becomes the copy's: in its folder, log and user.

A fork keeps the variables, the output and the user of the process that it was forked from. The
same for forks of the platform's interpreter (fleet/launch/warm_process.py) and of a runtime's.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import tempfile
from typing import Any

PR_SET_DUMPABLE = 4
ARGUMENTS_AT, ENVIRONMENT_AT = 48, 50  # the numbers of the fields in proc_pid_stat(5)


def become_copy(copy: dict[str, Any], gate: socket.socket) -> bool:
    """Become a process of the copy that an order describes; False where the agent is gone.

    It waits at the gate until the agent has set its limits: those of another user's process take
    one more privilege.
    """
    os.setsid()
    os.chdir(copy["folder"])
    redirect(copy["log"])
    mark(copy["marker"], copy["copy_folder"])
    with gate:
        if not gate.recv(1):
            return False
    if copy["uid"] is not None:
        become(copy["uid"], copy["gid"])
    return True


def take_environment(environment: dict[str, str]) -> None:
    """Use these variables and no others."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR may have changed


def become(uid: int, gid: int) -> None:
    """Switch to the user for good, in that group only; raises OSError if the kernel refuses."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    tempfile.tempdir = None  # TMPDIR has changed
    # The kernel hides a process that changed its user from itself in /proc, unless it is dumpable.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)


def redirect(log: str) -> None:
    """Read from /dev/null and append output to `log`."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    sink = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    for source, target in ((nowhere, 0), (sink, 1), (sink, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(sink)


def mark(variable: str, folder: str) -> None:
    """Write `folder` into the space of the marker in this process's first environment.

    /proc/PID/environ shows the memory that the program was started with, whatever os.environ holds
    now. Agents find a copy's processes there (fleet/host/processes.py).
    """
    with open("/proc/self/environ", "rb") as file:
        shown = file.read()
    begin = (b"\0" + shown).index(b"\0" + variable.encode() + b"=")
    begin += len(variable) + 1
    room = shown.index(b"\0", begin) - begin
    value = os.fsencode(folder)
    if len(value) > room:
        raise ValueError(f"the copy's folder {folder} has more than {room} bytes")
    ctypes.memmove(memory_address(ENVIRONMENT_AT) + begin, value.ljust(room, b"\0"), room)


def show_command(argv: list[str] | tuple[str, ...]) -> None:
    """Show `argv` as this process's command line in /proc, cut to the space of the first one."""
    begin = memory_address(ARGUMENTS_AT)
    room = memory_address(ARGUMENTS_AT + 1) - begin
    shown = b"".join(os.fsencode(it) + b"\0" for it in argv)[: room - 1]
    ctypes.memmove(begin, shown.ljust(room, b"\0"), room)


def memory_address(field: int) -> int:
    """An address in this process's memory, by its number in proc_pid_stat(5)."""
    with open("/proc/self/stat", "rb") as file:
        # The command in parentheses may itself hold spaces and parentheses.
        return int([b"", b"", b"", *file.read().rpartition(b")")[2].split()][field])
