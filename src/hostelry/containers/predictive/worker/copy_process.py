"""Makes a fork the process of one copy, with the copy's folder, log and user.

A fork first has the variables, the output and the user of its parent. Forks of the platform's
interpreter (fleet/launch/warm_process.py) and of a runtime's interpreter use this module.
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
    """Become a process of the copy that an order describes. False if the agent is gone.

    The process waits at the gate until the agent has set its limits, before it changes its user:
    the agent would need one more privilege to limit another user's process.
    """
    os.setsid()
    os.chdir(copy["folder"])
    redirect(copy["log"])
    write_marker(copy["marker"], copy["copy_folder"])
    with gate:
        if not gate.recv(1):
            return False
    if copy["uid"] is not None:
        switch_user(copy["uid"], copy["gid"])
    return True


def take_environment(environment: dict[str, str]) -> None:
    """Replace the environment."""
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # TMPDIR may have changed


def switch_user(uid: int, gid: int) -> None:
    """Switch to the user permanently, in that group only. Raises OSError if that is forbidden."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    tempfile.tempdir = None  # TMPDIR has changed
    # After the change of user a process cannot read itself in /proc, unless it is dumpable.
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


def write_marker(variable: str, folder: str) -> None:
    """Write `folder` into the space of the marker in this process's first environment.

    /proc/PID/environ shows the memory of the program's start, not os.environ. Agents find a copy's
    processes there (fleet/host/processes.py). The first byte is written last, because an agent
    keeps a value that begins with a slash, and may read it at any moment.
    """
    with open("/proc/self/environ", "rb") as file:
        shown = file.read()
    begin = (b"\0" + shown).index(b"\0" + variable.encode() + b"=")
    begin += len(variable) + 1
    room = shown.index(b"\0", begin) - begin
    value = os.fsencode(folder)
    if len(value) > room:
        raise ValueError(f"the copy's folder {folder} has more than {room} bytes")
    value = value.ljust(room, b"\0")
    address = memory_address(ENVIRONMENT_AT) + begin
    for part, offset in ((value[1:], 1), (value[:1], 0)):
        ctypes.memmove(address + offset, part, len(part))


def show_command(argv: list[str] | tuple[str, ...]) -> None:
    """Show `argv` as this process's command line in /proc, cut to the first command's space."""
    begin = memory_address(ARGUMENTS_AT)
    room = memory_address(ARGUMENTS_AT + 1) - begin
    shown = b"".join(os.fsencode(it) + b"\0" for it in argv)[: room - 1]
    ctypes.memmove(begin, shown.ljust(room, b"\0"), room)


def memory_address(field: int) -> int:
    """An address in this process's memory, by the field's number in proc_pid_stat(5)."""
    with open("/proc/self/stat", "rb") as file:
        # The command in parentheses may contain spaces and parentheses.
        return int([b"", b"", b"", *file.read().rpartition(b")")[2].split()][field])
