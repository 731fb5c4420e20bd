"""A copy's environment variables, from plain values.

A copy gets little of the operator's environment and none of the platform's keys: an allowlist, what
`given_variables.py` lets pass of the container's own, and what docs/architecture.md section 5
promises a model server.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from hostelry.base.copy_key import VARIABLE as KEY_VARIABLE
from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.rules.devices import device_variables, devices_of_copy
from hostelry.fleet.rules.given_variables import given_variables
from hostelry.fleet.rules.images import ImageRule
from hostelry.fleet.rules.interpreter import PYTHON_VARIABLES
from hostelry.fleet.rules.limits import (
    DISK_VARIABLE,
    CopyLimits,
    asked_disk_bytes,
    limits_of,
    thread_variables,
)

PASSED_ON = frozenset(
    {
        "CUDA_HOME", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN",
        "HF_TOKEN_PATH", "HOME", "HTTPS_PROXY", "HTTP_PROXY", "LANG", "LC_ALL", "LC_CTYPE",
        "LD_LIBRARY_PATH", "LOGNAME", "NO_PROXY", "PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR",
        "SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME", "http_proxy", "https_proxy",
        "no_proxy",
    }
)  # fmt: skip

# Of a built-in server and whatever it starts: AWS's clients find no keys but the caller's.
PINNED = {
    **PYTHON_VARIABLES,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
TOKENS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})  # one of the caller's is used alone
OWN_TOKENS = frozenset({"HF_TOKEN", "HF_TOKEN_PATH"})
BIND_HOST = "127.0.0.1"
ARTIFACT_PREFIX = "HOSTELRY_ARTIFACT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """Where a copy runs: its folder, model folder, port and key, in which region, on what shape.

    `machine_cpus` counts the CPUs that really are there, `reserved_cpus` those that all copies of
    the instance reserve; `devices` names its real accelerators (`devices.assign_devices`).
    """

    folder: Path
    model_folder: Path
    port: int
    region: str
    shape: Shape
    machine_cpus: int
    reserved_cpus: float = 0.0
    devices: tuple[str, ...] = ()
    key: str | None = field(default=None, repr=False)

    def limits_of(self, spec: CopySpec) -> CopyLimits:
        """What the copy may take here."""
        asked_mb = spec.container.environment.get(DISK_VARIABLE, "")
        return replace(
            limits_of(spec.requirements, self.shape, self.machine_cpus, self.reserved_cpus),
            max_disk_bytes=asked_disk_bytes(asked_mb),
        )


def program_environment(
    operator: Mapping[str, str],
    spec: CopySpec,
    rule: ImageRule,
    place: CopyPlace,
    substitutes: Mapping[str, str],
) -> dict[str, str]:
    """Every variable that a copy gets which is a program of this machine.

    `substitutes` replace the container's own values: local folders for artifacts it named by URI.
    """
    given = given_variables(spec.container.environment, rule.environment, place.machine_cpus)
    inherited = passed_on(operator)
    if TOKENS & given.keys():
        inherited = {name: it for name, it in inherited.items() if name not in OWN_TOKENS}
    threads = thread_variables(
        place.limits_of(spec).num_threads, operator.get("OMP_NUM_THREADS", "")
    )
    return {
        **inherited,
        **threads,
        "PYTHONUNBUFFERED": "1",
        **contract_variables(spec, place, substitutes, given),
        **(PINNED if rule.is_built_in else {}),
        "SAGEMAKER_BIND_HOST": BIND_HOST,
    }


def contract_variables(
    spec: CopySpec,
    place: CopyPlace,
    substitutes: Mapping[str, str],
    given: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """What docs/architecture.md section 5 promises any copy, with what it is `given` of its own."""
    return {
        "SAGEMAKER_REGION": place.region,
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        **given,
        **substitutes,
        **{f"{ARTIFACT_PREFIX}{name}": folder for name, folder in substitutes.items()},
        "SAGEMAKER_BIND_TO_PORT": str(place.port),
        "HOSTELRY_MODEL_DIR": str(place.model_folder),
        **_reservation(spec.requirements, place.shape),
        **device_variables(visible_devices(spec, place.devices)),
        MARKER_VARIABLE: str(place.folder),
        **({} if place.key is None else {KEY_VARIABLE: place.key}),
    }


def passed_on(operator: Mapping[str, str]) -> dict[str, str]:
    """What every copy gets of the operator's environment."""
    return {name: value for name, value in operator.items() if name in PASSED_ON}


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
