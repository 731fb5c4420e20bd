"""A copy's environment variables, from plain values.

A copy gets little of the operator's environment and none of the platform's keys: an allowlist, the
container's own variables, and what docs/architecture.md section 5 promises a model server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.devices import device_variables, devices_of_copy
from hostelry.fleet.limits import limits_of, thread_variables
from hostelry.fleet.processes import MARKER_VARIABLE

PASSED_ON = frozenset(
    {
        "CUDA_HOME", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN",
        "HF_TOKEN_PATH", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LC_ALL", "LC_CTYPE",
        "LD_LIBRARY_PATH", "LOGNAME", "NO_PROXY", "PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR",
        "SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME", "http_proxy", "https_proxy",
        "no_proxy",
    }
)  # fmt: skip

# Variables that load code into a process before its own first line: a container's Environment is
# a caller's input and may not set them.
LOADER_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "PYTHONWARNINGS",
    }
)
LOADER_PREFIX = "LD_"
PLATFORM_PREFIX = "HOSTELRY_"
DEVICE_VARIABLES = frozenset(device_variables(()))  # a copy sees what it reserved


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """Where a copy runs: its folder, model folder and port, in which region, on what shape.

    `machine_cpus` counts the CPUs that really are there, `devices` names the instance's real
    accelerators (`devices.assign_devices`).
    """

    folder: Path
    model_folder: Path
    port: int
    region: str
    shape: Shape
    machine_cpus: int
    devices: tuple[str, ...] = ()


def copy_environment(
    operator: Mapping[str, str],
    spec: CopySpec,
    place: CopyPlace,
    substitutes: Mapping[str, str],
) -> dict[str, str]:
    """Every variable the copy's process gets.

    `substitutes` replace the container's own values: local folders for artifacts it named by URI.
    """
    given = {
        name: value
        for name, value in spec.container.environment.items()
        if name not in refused_variables(spec)
    }
    threads = thread_variables(
        limits_of(spec, place.shape).cpus, place.machine_cpus, operator.get("OMP_NUM_THREADS", "")
    )
    return {
        **passed_on(operator),
        **threads,
        "PYTHONUNBUFFERED": "1",
        "SAGEMAKER_REGION": place.region,
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        **given,
        **substitutes,
        "SAGEMAKER_BIND_TO_PORT": str(place.port),
        "HOSTELRY_MODEL_DIR": str(place.model_folder),
        **_reservation(spec.requirements, place.shape),
        **device_variables(visible_devices(spec, place.devices)),
        MARKER_VARIABLE: str(place.folder),
    }


def passed_on(operator: Mapping[str, str]) -> dict[str, str]:
    """What every copy gets of the operator's environment."""
    return {name: value for name, value in operator.items() if name in PASSED_ON}


def refused_variables(spec: CopySpec) -> list[str]:
    """The names in the container's Environment that are not passed on."""
    return sorted(
        name
        for name in spec.container.environment
        if name in LOADER_VARIABLES
        or name.startswith((LOADER_PREFIX, PLATFORM_PREFIX))
        or name == "SAGEMAKER_BIND_TO_PORT"
        or name in DEVICE_VARIABLES
    )


def visible_devices(spec: CopySpec, own: Sequence[str]) -> tuple[str, ...]:
    """The real accelerators the copy sees, of its instance's `own`."""
    accelerators = None if spec.requirements is None else spec.requirements.accelerators
    return devices_of_copy(spec.device_ids, accelerators, own)


def _reservation(requirements: Requirements | None, shape: Shape) -> dict[str, str]:
    """What the copy reserves; without requirements it has the instance to itself."""
    reserved = requirements or Requirements(
        min_memory_bytes=shape.memory_bytes, cpus=shape.cpus, accelerators=shape.accelerators
    )
    return {
        "HOSTELRY_CPUS": f"{reserved.cpus:g}",
        "HOSTELRY_ACCELERATORS": f"{reserved.accelerators:g}",
        "HOSTELRY_MEMORY_BYTES": str(reserved.min_memory_bytes),
    }
