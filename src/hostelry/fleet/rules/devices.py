"""Accelerators of instances and copies, and the memory that models declare on them. Pure.

An instance *declares* accelerators by its type. The machine may have fewer, or none. Device `i` of
the instance is the `i`-th of its real devices. A copy sees only its own devices.

A container of many models declares its accelerator memory, because nothing measures it:

    HOSTELRY_ACCELERATOR_MEMORY_MB         the memory for models. Without it nothing is counted
    HOSTELRY_MODEL_ACCELERATOR_MEMORY_MB   the memory of each model that declares nothing itself

agent/models/loading.py has a model's own declaration.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hostelry.base.errors import TerminalError

CAPACITY = "HOSTELRY_ACCELERATOR_MEMORY_MB"
EACH_MODEL = "HOSTELRY_MODEL_ACCELERATOR_MEMORY_MB"
MAX_MB = 1 << 24
MB = 1 << 20
NVIDIA_NODE = re.compile(r"nvidia(\d+)")


class AcceleratorMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A container's declaration. `capacity_bytes` is `None` if nothing is counted."""

    capacity_bytes: int | None = None
    model_bytes: int = 0


def parse_accelerator_memory(environment: Mapping[str, str]) -> AcceleratorMemory:
    """The declarations of a container's Environment.

    Raises TerminalError for values other than whole numbers from 1 to 2^24.
    """
    capacity_mb, model_mb = (_number(environment, name) for name in (CAPACITY, EACH_MODEL))
    if capacity_mb is None:
        return AcceleratorMemory()
    return AcceleratorMemory(capacity_bytes=capacity_mb * MB, model_bytes=(model_mb or 0) * MB)


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
    if not 1 <= value <= MAX_MB:
        raise TerminalError(f"{name} is {text[:40]!r}; it must be a number from 1 to {MAX_MB}")
    return value


def find_real_devices(operator: Mapping[str, str], device_nodes: Iterable[str]) -> tuple[str, ...]:
    """The accelerators that the platform may use: the operator's CUDA_VISIBLE_DEVICES, else all.

    `device_nodes` are the names in /dev.
    """
    chosen = operator.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(name for it in chosen.split(",") if (name := it.strip()) and name != "-1")
    numbers = (found[1] for node in device_nodes if (found := NVIDIA_NODE.fullmatch(node)))
    return tuple(sorted(numbers, key=int))


def assign_devices(
    declared: int, real: Sequence[str], held: Iterable[Sequence[str]]
) -> tuple[str, ...]:
    """The real devices of a new instance that declares `declared` of them.

    declared 0, or more than the machine has -> none: its copies compute on CPUs
    otherwise                                -> the devices that the fewest other instances have,
                                                by position. So a device is shared only if no device
                                                is free

    `held` are the devices of each other instance.
    """
    if declared == 0 or declared > len(real):
        return ()
    holders = dict.fromkeys(real, 0)
    for devices in held:
        for device in devices:
            if device in holders:
                holders[device] += 1
    rarest = sorted(range(len(real)), key=lambda at: (holders[real[at]], at))[:declared]
    return tuple(real[at] for at in sorted(rarest))


def select_copy_devices(
    device_ids: Sequence[int], accelerators: float | None, own: Sequence[str]
) -> tuple[str, ...]:
    """The real devices that a copy sees of its instance's `own`.

    device ids in its spec                            -> those that exist
    none, and no reservation (has the instance alone) -> all
    none, reserves accelerators (an older control)    -> all
    none, reserves no accelerators                    -> none
    """
    if device_ids:
        return tuple(own[device] for device in device_ids if device < len(own))
    return tuple(own) if accelerators is None or accelerators > 0 else ()


def compute_device_share(
    devices: Sequence[str], held: Iterable[Sequence[str]], num_sharing: int = 1
) -> float:
    """The share of each of its `devices` that a copy may use. All that share a device are equal.

    `held` are the devices of every instance, the copy's own included. `num_sharing` containers of
    the instance see the same devices.
    """
    instances = list(held)
    holders = max((sum(device in it for it in instances) for device in devices), default=1)
    return 1 / (max(holders, 1) * num_sharing)


def device_variables(devices: Sequence[str]) -> dict[str, str]:
    """The variables that make a process see `devices` and no other accelerator."""
    visible = ",".join(devices)
    return {"CUDA_VISIBLE_DEVICES": visible, "NVIDIA_VISIBLE_DEVICES": visible or "void"}
