"""A copy's environment variables, from plain values.

A copy gets little of the operator's environment and none of the platform's keys: an allowlist, the
container's own variables, and what docs/architecture.md section 5 promises a model server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.processes import MARKER_VARIABLE

PASSED_ON = frozenset(
    {
        "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE",
        "HF_HUB_OFFLINE", "HF_TOKEN", "HF_TOKEN_PATH", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG",
        "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "LOGNAME", "NO_PROXY", "NVIDIA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS", "PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR",
        "TZ", "USER", "XDG_CACHE_HOME", "http_proxy", "https_proxy", "no_proxy",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """Where a copy runs: its folder, model folder and port, in which region, on what shape."""

    folder: Path
    model_folder: Path
    port: int
    region: str
    shape: Shape


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
    return {
        **{name: value for name, value in operator.items() if name in PASSED_ON},
        "PYTHONUNBUFFERED": "1",
        "SAGEMAKER_REGION": place.region,
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        **given,
        **substitutes,
        "SAGEMAKER_BIND_TO_PORT": str(place.port),
        "HOSTELRY_MODEL_DIR": str(place.model_folder),
        **_reservation(spec.requirements, place.shape),
        MARKER_VARIABLE: str(place.folder),
    }


def refused_variables(spec: CopySpec) -> list[str]:
    """The names in the container's Environment that are not passed on."""
    return sorted(
        name
        for name in spec.container.environment
        if name in LOADER_VARIABLES
        or name.startswith((LOADER_PREFIX, PLATFORM_PREFIX))
        or name == "SAGEMAKER_BIND_TO_PORT"
    )


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
