"""Confinement of this process by the kernel, for the rest of its life.

files     Landlock: it can read and write the given places, and no other file, also not /proc and
          the memory of other processes
sizes     resource limits: memory, files, open files, no core
calls     seccomp, by the numbers of the machine's system calls:
  signals, memory, limits, priorities of other processes  EPERM
  new processes and programs, namespaces, mounts          EPERM (clone3: ENOSYS, because threads
                                                          then use clone)
  sockets, IPC, io_uring, keys, kernel interfaces         EPERM
  modes and owners of files                               EPERM
  calls of another kind of machine                        the process is killed
"""

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hostelry.base.errors import HostelryError

CLONE_THREAD = 0x00010000
X32_CALLS = 0x40000000
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000
# Opcodes of the filter's language: load a word of the call's data, compare, return.
LOAD, IF_EQUAL, IF_AT_LEAST, IF_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16  # offsets, little endian
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every kind of machine
MIN_LANDLOCK = 3  # Linux 6.2: the first in which truncating a file is restricted
SCOPES_SINCE = 6
IOCTL_SINCE = 5
NET_SINCE = 4
VERSION_FLAG = 1
BENEATH = 1
READ_FILE, READ_FOLDER, WRITE_FILE, TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
ALL_FILE_RIGHTS = (1 << 15) - 1
IOCTL_RIGHT = 1 << 15
TCP_RIGHTS = 3
SCOPES = 3  # abstract sockets, signals
EXECUTE, MAKE_DEVICES = 1, (1 << 6) | (1 << 11)
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_FILTER = 38, 22, 2
MEMORY_BYTES = 2 << 30
FILE_BYTES = 256 << 20
OPEN_FILES = 256
_libc = ctypes.CDLL(None, use_errno=True)


class MachineCalls(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of system calls on one kind of machine, which the kernel calls `audit`."""

    audit: int
    clone: int
    clone3: int
    to_own_process: tuple[int, ...]  # kill, tgkill: allowed if the first argument is this process
    to_own_limits: int  # prlimit64: allowed if the first argument is 0
    denied: tuple[int, ...]


MACHINES: Mapping[str, MachineCalls] = {
    "x86_64": MachineCalls(
        audit=0xC000003E,
        clone=56,
        clone3=435,
        to_own_process=(62, 234),
        to_own_limits=302,
        denied=(
            41, 42, 49, 50,  # socket, connect, bind, listen
            57, 58, 59, 322,  # fork, vfork, execve, execveat
            101, 310, 311, 312, 440,  # ptrace, process_vm_*, kcmp, process_madvise
            200, 129, 297, 424, 434, 438,  # tkill, rt_*sigqueueinfo, pidfd_*
            141, 142, 144, 203, 251, 256, 279, 314,  # priorities, affinities, pages of others
            29, 64, 68, 240,  # shmget, semget, msgget, mq_open
            425, 426, 427, 298, 321, 323,  # io_uring_*, perf_event_open, bpf, userfaultfd
            248, 249, 250,  # add_key, request_key, keyctl
            155, 161, 165, 166, 272, 308, 428, 429, 430, 442,  # roots, mounts, namespaces
            90, 91, 92, 93, 94, 188, 189, 190, 260, 268, 452,  # modes, owners, attributes
        ),
    ),
    "aarch64": MachineCalls(
        audit=0xC00000B7,
        clone=220,
        clone3=435,
        to_own_process=(129, 131),
        to_own_limits=261,
        denied=(
            198, 200, 201, 203,
            221, 281,
            117, 270, 271, 272, 440,
            130, 138, 240, 424, 434, 438,
            140, 118, 119, 122, 30, 238, 239, 274,
            194, 190, 186, 180,
            425, 426, 427, 241, 280, 282,
            217, 218, 219,
            39, 40, 41, 51, 97, 268, 428, 429, 430, 442,
            52, 53, 54, 55, 5, 6, 7, 452,
        ),
    ),
}  # fmt: skip


def build_filter(calls: MachineCalls, pid: int) -> bytes:
    """The filter of the process `pid`, in the kernel's form."""
    refused = ERRNO | errno.EPERM
    steps = [
        step(LOAD, ARCHITECTURE_AT),
        step(IF_EQUAL, calls.audit, 1, 0),
        step(RETURN, KILL),
        step(LOAD, NUMBER_AT),
        step(IF_AT_LEAST, X32_CALLS, 0, 1),
        step(RETURN, refused),
        *return_for(calls.clone3, ERRNO | errno.ENOSYS),
        *allow_if(calls.clone, IF_BITS, CLONE_THREAD, refused),
        *allow_if(calls.to_own_limits, IF_EQUAL, 0, refused),
    ]
    for number in calls.to_own_process:
        steps += allow_if(number, IF_EQUAL, pid, refused)
    for number in calls.denied:
        steps += return_for(number, refused)
    return b"".join([*steps, step(RETURN, ALLOW)])


def step(code: int, value: int, jump_if: int = 0, jump_else: int = 0) -> bytes:
    """One step."""
    return struct.pack("<HBBI", code, jump_if, jump_else, value)


def return_for(number: int, verdict: int) -> list[bytes]:
    """Steps that return `verdict` for the call `number`."""
    return [step(IF_EQUAL, number, 0, 1), step(RETURN, verdict)]


def allow_if(number: int, test: int, value: int, refused: int) -> list[bytes]:
    """Steps that allow the call `number` if its first argument passes the test."""
    return [
        step(IF_EQUAL, number, 0, 4),
        step(LOAD, FIRST_ARGUMENT_AT),
        step(test, value, 0, 1),
        step(RETURN, ALLOW),
        step(RETURN, refused),
    ]


class ConfinementError(HostelryError):
    """This machine cannot confine a process. The message names the missing feature."""


class RulesetAttributes(ctypes.Structure):
    """The rights that a ruleset handles."""

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scopes", ctypes.c_uint64),
    )


class BeneathAttributes(ctypes.Structure):
    """Rights below an open folder."""

    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


class FilterProgram(ctypes.Structure):
    """A seccomp filter: the number of steps, and the steps."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """Files and folders that a confined process may read, and folders that it may write."""

    readable: tuple[str, ...]
    writable: tuple[str, ...] = ()


def landlock_version() -> int:
    """The version of the kernel's Landlock. 0 if it is off."""
    version = _libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(VERSION_FLAG))
    return max(0, int(version))


def check_possible() -> None:
    """Raise ConfinementError if this machine cannot confine a process."""
    if platform.machine() not in MACHINES:
        raise ConfinementError(
            f"the machine is {platform.machine()}; processes are confined on "
            f"{' and '.join(MACHINES)} only"
        )
    version = landlock_version()
    if version < MIN_LANDLOCK:
        raise ConfinementError(
            f"the kernel's Landlock has version {version}; {MIN_LANDLOCK} is needed (Linux 6.2 "
            "with landlock in its list of security modules)"
        )


def confine(places: Confinement) -> None:
    """Confine this process, which must have one thread. Raises ConfinementError."""
    check_possible()
    limit_sizes()
    if _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise get_error("prctl(PR_SET_NO_NEW_PRIVS)")
    restrict_files(places, landlock_version())
    filter_calls()


def limit_sizes() -> None:
    """Set the limits of memory and files."""
    for kind, most in (
        (resource.RLIMIT_DATA, MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, FILE_BYTES),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def restrict_files(places: Confinement, version: int) -> None:
    """Apply a Landlock ruleset."""
    all_rights = ALL_FILE_RIGHTS | (IOCTL_RIGHT if version >= IOCTL_SINCE else 0)
    attributes = RulesetAttributes(all_rights, TCP_RIGHTS, SCOPES)
    size = 24 if version >= SCOPES_SINCE else 16 if version >= NET_SINCE else 8
    ruleset = _libc.syscall(
        CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
    )
    if ruleset < 0:
        raise get_error("landlock_create_ruleset")
    try:
        add_places(ruleset, places.readable, READ_FILE | READ_FOLDER)
        add_places(ruleset, places.writable, all_rights & ~EXECUTE & ~MAKE_DEVICES & ~IOCTL_RIGHT)
        if _libc.syscall(RESTRICT_SELF, ruleset, ctypes.c_uint32(0)):
            raise get_error("landlock_restrict_self")
    finally:
        os.close(ruleset)


def add_places(ruleset: int, places: Sequence[str], rights: int) -> None:
    """Allow `rights` below each of `places` that exists."""
    for place in dict.fromkeys(places):
        try:
            folder = os.open(place, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            given = rights if Path(place).is_dir() else rights & (READ_FILE | WRITE_FILE | TRUNCATE)
            rule = BeneathAttributes(given, folder)
            if _libc.syscall(ADD_RULE, ruleset, BENEATH, ctypes.byref(rule), ctypes.c_uint32(0)):
                raise get_error(f"landlock_add_rule of {place}")
        finally:
            os.close(folder)


def filter_calls() -> None:
    """Apply the seccomp filter."""
    steps = build_filter(MACHINES[platform.machine()], os.getpid())
    program = FilterProgram(len(steps) // 8, steps)
    if _libc.prctl(PR_SET_SECCOMP, SECCOMP_FILTER, ctypes.byref(program), 0, 0):
        raise get_error("prctl(PR_SET_SECCOMP)")


def get_error(call: str) -> ConfinementError:
    """The error of a system call that failed."""
    return ConfinementError(f"{call}: {os.strerror(ctypes.get_errno())}")
