"""System calls that an author's code may not make, by the kind of machine, as a seccomp filter.

another process's signals, memory, limits, priorities -> EPERM
a new process or program, a namespace, a mount        -> EPERM (clone3: ENOSYS, so that
                                                         threads are made by clone)
a socket, IPC, io_uring, keys, kernel interfaces      -> EPERM
modes and owners of files                             -> EPERM
a call of another kind of machine                     -> the process is killed
"""

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass

CLONE_THREAD = 0x00010000
X32_CALLS = 0x40000000
ALLOW = 0x7FFF0000
ERRNO = 0x00050000
KILL = 0x80000000

# Opcodes of the filter's language: load a word of the call's data, compare, return.
LOAD, IF_EQUAL, IF_AT_LEAST, IF_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16  # offsets, little endian


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCalls:
    """Numbers of system calls on one kind of machine; `audit` is the kernel's name for it."""

    audit: int
    clone: int
    clone3: int
    to_own_process: tuple[
        int, ...
    ]  # allowed where the first argument is this process: kill, tgkill
    to_own_limits: int  # prlimit64, allowed where the first argument is 0
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


def seccomp_program(calls: MachineCalls, pid: int) -> bytes:
    """The filter of process `pid`, in the kernel's form."""
    refused = ERRNO | errno.EPERM
    steps = [
        step(LOAD, ARCHITECTURE_AT),
        step(IF_EQUAL, calls.audit, 1, 0),
        step(RETURN, KILL),
        step(LOAD, NUMBER_AT),
        step(IF_AT_LEAST, X32_CALLS, 0, 1),
        step(RETURN, refused),
        *returned(calls.clone3, ERRNO | errno.ENOSYS),
        *guarded(calls.clone, IF_BITS, CLONE_THREAD, refused),
        *guarded(calls.to_own_limits, IF_EQUAL, 0, refused),
    ]
    for number in calls.to_own_process:
        steps += guarded(number, IF_EQUAL, pid, refused)
    for number in calls.denied:
        steps += returned(number, refused)
    return b"".join([*steps, step(RETURN, ALLOW)])


def step(code: int, value: int, jump_if: int = 0, jump_else: int = 0) -> bytes:
    """One step."""
    return struct.pack("<HBBI", code, jump_if, jump_else, value)


def returned(number: int, verdict: int) -> list[bytes]:
    """Steps that return `verdict` for that call."""
    return [step(IF_EQUAL, number, 0, 1), step(RETURN, verdict)]


def guarded(number: int, test: int, value: int, refused: int) -> list[bytes]:
    """Steps that allow that call where its first argument passes the test."""
    return [
        step(IF_EQUAL, number, 0, 4),
        step(LOAD, FIRST_ARGUMENT_AT),
        step(test, value, 0, 1),
        step(RETURN, ALLOW),
        step(RETURN, refused),
    ]
