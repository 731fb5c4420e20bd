"""Launch orders and variables of containers. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hostelry.base.guards import COPY_KEY_VARIABLE as KEY_VARIABLE
from hostelry.domain.copy import CopySpec
from hostelry.domain.isolation import VARIABLE as ISOLATION
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.launch.environment import (
    SAFE_PORTS,
    CopyPlace,
    build_contract_variables,
    select_visible_devices,
)
from hostelry.fleet.rules.devices import CAPACITY, EACH_MODEL
from hostelry.fleet.rules.given_variables import VARIABLE, is_among, is_steering
from hostelry.fleet.rules.images import ImageRule
from hostelry.fleet.rules.limits import thread_variables

INNER_PORT = 8080  # of a server in a separate network namespace
INNER_SAFE_PORTS = "10000-10999"
MODEL_PATH = "/opt/ml/model"
ARTIFACT_PATH = "/opt/ml/artifacts"
ADAPTERS_PATH = "/opt/ml/models"
# A value of several lines does not fit the --env-file, and every user can read a command line. So
# the value is passed through the environment of the engine's own command, and names that the
# command or its children may read are refused for such values.
ENGINE_NAMES = (
    "BUILDAH_*", "BUILDKIT_*", "CNI_*", "CONMON*", "CONTAINER*", "CRUN*", "DBUS_*", "DOCKER*",
    "GO*", "GNUPGHOME", "GPG*", "KUBE*", "LIBPOD*", "LISTEN_*", "MOBY_*", "NETAVARK*", "NOTIFY_*",
    "OCI_*", "OTEL_*", "PODMAN*", "REGISTR*", "REMOTE*", "RUNC*", "SSH_*", "STORAGE_*",
    "SYSTEMD_*", "_*",
)  # fmt: skip
OWN_PREFIX = "HOSTELRY_"
# In a container devices are numbered from 0 again, and the proxy checks the key for it.
HOST_ONLY = frozenset({"CUDA_VISIBLE_DEVICES", MARKER_VARIABLE, KEY_VARIABLE})
OURS = frozenset({"SAGEMAKER_BIND_TO_PORT", SAFE_PORTS, "NVIDIA_VISIBLE_DEVICES"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOrder:
    """The parts of a launch order that only containers have.

    image: the reference as the model names it.
    network: "none", "host" or "bridge" (`images.ImageRule.network`).
    port: the port on this machine's loopback. The server's port inside may differ.
    model_folder: mounted read-only at /opt/ml/model.
    mounts: further folders of this machine, read-only, by their path in the container.
    cpus: cores it may use. None for no limit.
    max_memory_bytes: it is killed above this. None for no limit.
    devices: the real accelerators it sees, by the machine's names.
    pull: whether an image that is not on this machine may be pulled, within pull_timeout_s.
    engine: the container engine, a name or a path. None for the first that answers.
    key: the key that its proxy requires. None with a network, which needs no proxy.
    is_multi_model, is_one_of_several: whether its image must have the label for that.
    """

    image: str
    network: str
    port: int
    model_folder: Path
    mounts: Mapping[str, Path]
    cpus: float | None
    max_memory_bytes: int | None
    devices: tuple[str, ...]
    pull: bool
    pull_timeout_s: float
    engine: str | None = None
    key: str | None = field(default=None, repr=False)
    is_multi_model: bool = False
    is_one_of_several: bool = False

    @property
    def inner_port(self) -> int:
        """The port of the server inside."""
        return self.port if self.network == "host" else INNER_PORT


def build_container_order(
    spec: CopySpec, rule: ImageRule, place: CopyPlace, substitutes: Mapping[str, str]
) -> ContainerOrder:
    """Build the order of a copy whose image itself runs.

    `substitutes` are the folders of artifacts that its variables named by URI.
    """
    reserved = 0.0 if spec.requirements is None else spec.requirements.cpus
    mounts = {inner_path(name): Path(folder) for name, folder in substitutes.items()}
    mounts[ADAPTERS_PATH] = adapters_folder(place.folder)
    return ContainerOrder(
        image=spec.container.image,
        network=rule.network,
        port=place.port,
        model_folder=place.model_folder,
        mounts=mounts,
        # All CPUs, or more, mean no limit. The declared shape may exceed the machine.
        cpus=reserved if 0 < reserved < place.machine_cpus else None,
        max_memory_bytes=place.compute_limits(spec).max_memory_bytes,
        devices=select_visible_devices(spec, place.devices),
        pull=rule.pull,
        pull_timeout_s=spec.download_timeout_s,
        engine=rule.engine,
        key=place.key if rule.network == "none" else None,
        is_multi_model=spec.container.is_multi_model,
        is_one_of_several=spec.container.hostname is not None,
    )


def build_container_environment(
    spec: CopySpec, order: ContainerOrder, place: CopyPlace, substitutes: Mapping[str, str]
) -> dict[str, str]:
    """Build every variable that the container gets, in addition to the variables of its image.

    No variable is the operator's, because the image is untrusted. The Environment may set PATH and
    the like, which only affect the container itself.
    """
    given = {
        name: value
        for name, value in spec.container.environment.items()
        if not name.startswith(OWN_PREFIX) and name not in OURS and can_reach(name, value)
    }
    inner = {name: inner_path(name) for name in substitutes}
    made = {
        **thread_variables(place.compute_limits(spec).num_threads),
        "PYTHONUNBUFFERED": "1",
        **build_contract_variables(spec, place, inner),
    }
    if SAFE_PORTS in made and order.network != "host":
        made[SAFE_PORTS] = INNER_SAFE_PORTS
    chosen = {
        **{name: value for name, value in made.items() if name not in HOST_ONLY},
        **given,
        **inner,
        "SAGEMAKER_BIND_TO_PORT": str(order.inner_port),
        "HOSTELRY_MODEL_DIR": MODEL_PATH,
    }
    return {name: value for name, value in chosen.items() if VARIABLE.fullmatch(name)}


def adapters_folder(copy_folder: Path) -> Path:
    """The folder of adapters that a container sees at /opt/ml/models."""
    return copy_folder / "adapters"


def inner_path(variable: str) -> str:
    """The path in the container of the artifact that a variable names."""
    return f"{ARTIFACT_PATH}/{variable}"


def find_refused_names(spec: CopySpec) -> list[str]:
    """The names in the container's Environment that are not passed on to it."""
    read = {"HOSTELRY_PROBE_BODY", "HOSTELRY_PROBE_CONTENT_TYPE", CAPACITY, EACH_MODEL, ISOLATION}
    return sorted(
        name
        for name in spec.container.environment
        if (name.startswith(OWN_PREFIX) and name not in read)
        or name in OURS
        or not can_reach(name, spec.container.environment[name])
    )


def can_reach(name: str, value: str) -> bool:
    """Whether `value` can be passed to a container as its variable `name`.

    with NUL                                                   -> no
    one line                                                   -> yes, by the --env-file
    several lines, the name steers programs or is the engine's -> no
    several lines, otherwise                                   -> yes, by the engine's environment
    """
    if "\0" in value:
        return False
    return fits_a_line(value) or not (is_steering(name) or is_among(name, ENGINE_NAMES))


def fits_a_line(value: str) -> bool:
    """Whether an engine's --env-file can hold the value."""
    return "\n" not in value and "\r" not in value
