"""Environment variables of a copy. Pure.

A copy gets an allowlist of the operator's environment without the platform's keys, the operator's
secrets that its image's rule has a purpose for (`base/operator_secrets.py`), the variables of its
container that `given_variables.py` passes, and the variables that docs/architecture.md section 5
promises to a model server.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from msgspec.structs import replace

from hostelry.base.guards import COPY_KEY_VARIABLE as KEY_VARIABLE
from hostelry.base.operator_secrets import HUB_VARIABLES, SecretPurpose, shown_variables
from hostelry.base.runtimes import VARIABLE as RUNTIMES_VARIABLE
from hostelry.base.runtimes import runtimes_folder
from hostelry.domain.copy import CopySpec
from hostelry.domain.shape import Requirements, Shape
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.rules.copy_user import OFFLINE, is_offline
from hostelry.fleet.rules.devices import (
    compute_device_share,
    device_variables,
    select_copy_devices,
)
from hostelry.fleet.rules.given_variables import given_variables
from hostelry.fleet.rules.images import ImageRule
from hostelry.fleet.rules.interpreter import PYTHON_VARIABLES
from hostelry.fleet.rules.limits import (
    DISK_VARIABLE,
    CopyLimits,
    asked_disk_bytes,
    compute_limits,
    thread_variables,
)

PASSED_ON = frozenset(
    {
        "CUDA_HOME", "HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN",
        "HF_TOKEN_PATH", "HOME", "HOSTELRY_CPU_RANKS", "HOSTELRY_CUSTOM_CODE",
        "HOSTELRY_CUSTOM_CODE_REQUIREMENTS", "HOSTELRY_MEDIA_DOMAINS", "HTTPS_PROXY", "HTTP_PROXY",
        "LANG", "LC_ALL", "LC_CTYPE",
        "LD_LIBRARY_PATH", "LOGNAME", "NO_PROXY", "PATH", "REQUESTS_CA_BUNDLE",
        "SAGEMAKER_SECURE_MODE", "SAGEMAKER_SECURITY_CONTROLS", "SAGEMAKER_UNTRUSTED_CHANNELS",
        "SSL_CERT_DIR", "SSL_CERT_FILE", "TMPDIR", "TZ", "USER", "XDG_CACHE_HOME",
        "http_proxy", "https_proxy", "no_proxy",
    }
)  # fmt: skip

# For a built-in server and its children. AWS's clients find only the caller's keys.
PINNED = {
    **PYTHON_VARIABLES,
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")  # a caller's token replaces the operator's
BIND_HOST = "127.0.0.1"
SAFE_PORTS = "SAGEMAKER_SAFE_PORT_RANGE"
ARTIFACT_PREFIX = "HOSTELRY_ARTIFACT_"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPlace:
    """A copy's folders, port and key, and its instance.

    `machine_cpus` are the real CPUs, `reserved_cpus` the CPUs that all copies of the instance
    reserve together. `safe_ports` are free ports, for further listeners of a server. `num_sharing`
    containers without a reservation share the memory. `devices` are the instance's real
    accelerators (`devices.assign_devices`), `held_devices` the devices of every instance.
    """

    folder: Path
    model_folder: Path
    port: int
    region: str
    shape: Shape
    machine_cpus: int
    reserved_cpus: float = 0.0
    num_sharing: int = 1
    safe_ports: range = range(0)
    devices: tuple[str, ...] = ()
    held_devices: tuple[tuple[str, ...], ...] = ()
    key: str | None = field(default=None, repr=False)

    def compute_limits(self, spec: CopySpec) -> CopyLimits:
        """The limits of the copy on this instance."""
        asked_mb = spec.container.environment.get(DISK_VARIABLE, "")
        found = compute_limits(spec.requirements, self.shape, self.machine_cpus, self.reserved_cpus)
        disk_bytes = asked_disk_bytes(asked_mb, found.max_disk_bytes)
        return replace(found, max_disk_bytes=disk_bytes)


def build_program_environment(
    operator: Mapping[str, str],
    spec: CopySpec,
    rule: ImageRule,
    place: CopyPlace,
    substitutes: Mapping[str, str],
) -> dict[str, str]:
    """Build every variable of a copy that is a program of this machine.

    Later variables win: the operator's allowlist, threads, the container's own, `substitutes`
    (local folders for artifacts that it named by URI), the contract's, and the pinned variables of
    built-in servers. An operator who works offline decides that for all copies, which then read the
    operator's folders.
    """
    given = given_variables(spec.container.environment, rule.environment, place.machine_cpus)
    if is_offline(operator):
        given.pop(OFFLINE, None)
    inherited = select_operator_variables(operator, rule.get_secrets(operator))
    if any(name in given for name in TOKENS) and SecretPurpose.HUB in rule.get_secrets(operator):
        inherited = {name: it for name, it in inherited.items() if name not in HUB_VARIABLES}
    threads = thread_variables(
        place.compute_limits(spec).num_threads, operator.get("OMP_NUM_THREADS", "")
    )
    return {
        **inherited,
        **threads,
        "PYTHONUNBUFFERED": "1",
        **build_contract_variables(spec, place, substitutes, given),
        **(PINNED if rule.is_built_in else {}),
        **({RUNTIMES_VARIABLE: str(runtimes_folder(operator))} if rule.is_built_in else {}),
        "SAGEMAKER_BIND_HOST": BIND_HOST,
    }


def build_contract_variables(
    spec: CopySpec,
    place: CopyPlace,
    substitutes: Mapping[str, str],
    given: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The variables that docs/architecture.md section 5 promises, with the copy's own `given`."""
    return {
        "SAGEMAKER_REGION": place.region,
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        **given,
        **substitutes,
        **{f"{ARTIFACT_PREFIX}{name}": folder for name, folder in substitutes.items()},
        "SAGEMAKER_BIND_TO_PORT": str(place.port),
        "HOSTELRY_MODEL_DIR": str(place.model_folder),
        **({"SAGEMAKER_MULTI_MODEL": "true"} if spec.container.is_multi_model else {}),
        **_safe_ports(place.safe_ports),
        **_reservation(spec, place),
        **device_variables(select_visible_devices(spec, place.devices)),
        MARKER_VARIABLE: str(place.folder),
        **({} if place.key is None else {KEY_VARIABLE: place.key}),
    }


def select_operator_variables(
    operator: Mapping[str, str], secrets: Collection[SecretPurpose]
) -> dict[str, str]:
    """Select the part of the operator's environment for copies that may see `secrets`."""
    listed = {name: value for name, value in operator.items() if name in PASSED_ON}
    return shown_variables(listed, secrets)


def select_visible_devices(spec: CopySpec, own: Sequence[str]) -> tuple[str, ...]:
    """Select the real accelerators that the copy sees from its instance's `own`."""
    accelerators = None if spec.requirements is None else spec.requirements.accelerators
    return select_copy_devices(spec.device_ids, accelerators, own)


def _safe_ports(ports: range) -> dict[str, str]:
    return {SAFE_PORTS: f"{ports[0]}-{ports[-1]}"} if ports else {}


def _reservation(spec: CopySpec, place: CopyPlace) -> dict[str, str]:
    """The copy's reservation, or the whole instance with its share of the memory.

    With its share of each accelerator, if it sees any.
    """
    shape, num_sharing = place.shape, 1 if spec.requirements else place.num_sharing
    devices = select_visible_devices(spec, place.devices)
    share = compute_device_share(devices, place.held_devices, num_sharing)
    reserved = spec.requirements or Requirements(
        min_memory_bytes=shape.memory_bytes // num_sharing,
        cpus=shape.cpus,
        accelerators=shape.accelerators,
    )
    return {
        "HOSTELRY_CPUS": f"{reserved.cpus:g}",
        "HOSTELRY_ACCELERATORS": f"{reserved.accelerators:g}",
        "HOSTELRY_MEMORY_BYTES": str(reserved.min_memory_bytes),
        **({"HOSTELRY_ACCELERATOR_SHARE": f"{share:.4g}"} if devices else {}),
    }
