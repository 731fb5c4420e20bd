"""Command lines for a container engine, and the meaning of its answers. Pure.

Source: docs.podman.io podman-run(1) and docs.docker.com `docker run`. SageMaker's container
contract has `serve`, port 8080, /opt/ml/model and the label.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.fleet.host.processes import MARKER_VARIABLE
from hostelry.fleet.launch.container_order import (
    INNER_PORT,
    MODEL_PATH,
    ContainerOrder,
    fits_a_line,
)
from hostelry.fleet.rules.limits import MEMORY_FIELDS, MIB

COPY_LABEL = "hostelry.copy"
INSTANCE_LABEL = "hostelry.instance"
BIND_LABEL = "com.amazonaws.sagemaker.capabilities.accept-bind-to-port"
MODELS_LABEL = "com.amazonaws.sagemaker.capabilities.multi-models"
MAX_PROCESSES = 4096
SHARED_MEMORY = "1g"
KILLED = 128 + 9
# Needed by a server that starts as root, prepares its files and becomes another user.
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETUID")
NO_PROGRAM = ("executable file not found", "no such file or directory", "no command or entrypoint")

# [registry[:port]/]path[:tag][@digest]. Podman takes more, such as dir:/etc, which is not an image.
_NAME = r"[A-Za-z0-9]+(?:[._-]+[A-Za-z0-9]+)*"
REFERENCE = re.compile(
    rf"(?:{_NAME}(?::[0-9]{{1,5}})?/)?{_NAME}(?:/{_NAME})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A container engine that answered.

    kind: "podman" or "docker".
    program: its path.
    runtime: the OCI runtime to select. None for the engine's default.
    rootless: whether it runs without root.
    keeps_limits: whether it enforces its containers' limits of memory and CPUs.
    max_files, max_processes: the agent's own hard limits, which an engine may be unable to raise.
    """

    kind: str
    program: str
    version: str
    runtime: str | None = None
    rootless: bool = False
    keeps_limits: bool = True
    max_files: int = 1024
    max_processes: int = 1024

    @property
    def argv(self) -> list[str]:
        """The program with the options that come before a command."""
        runtime = ["--runtime", self.runtime] if self.runtime and self.kind == "podman" else []
        return [self.program, *runtime]


class ImageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An image on this machine. `id` identifies its content."""

    id: str
    labels: Mapping[str, str]

    @property
    def binds_to_port(self) -> bool:
        """Whether its server listens on SAGEMAKER_BIND_TO_PORT."""
        return self.labels.get(BIND_LABEL, "").lower() == "true"

    @property
    def loads_models(self) -> bool:
        """Whether its server has the multi-model routes."""
        return self.labels.get(MODELS_LABEL, "").lower() == "true"


class ContainerState(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's view of a container. `pid` is `None` once it has ended."""

    running: bool
    pid: int | None
    exit_code: int
    out_of_memory: bool
    error: str


class ContainerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One container: its order, its copy's folder, its arguments and variables."""

    order: ContainerOrder
    folder: Path
    arguments: Sequence[str]
    environment: Mapping[str, str]

    @property
    def environment_file(self) -> Path:
        """The file of its variables, because every user of this machine can read a command line."""
        return self.folder / "container.env"


def container_name(folder: Path) -> str:
    """The name of the container of the copy in `folder`, the same for every agent process."""
    return f"hostelry-{folder.name[:40]}-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"


def check_reference(image: str) -> None:
    """Raise TerminalError unless `image` is an image reference and nothing else."""
    if not REFERENCE.fullmatch(image):
        raise TerminalError(
            f'"{image}" is not the name of a container image. Use [registry[:port]/]name[:tag] or '
            "name@sha256:digest."
        )


def run_arguments(engine: EngineFacts, image: ImageFacts, plan: ContainerPlan) -> list[str]:
    """Build the command that creates and starts the container, detached.

    Raises TerminalError for options that this engine or image does not support.
    """
    order = plan.order
    missing = _missing_labels(order, image)
    if missing:
        raise TerminalError(
            f"Your Ecr Image {order.image} does not contain required {','.join(missing)} Docker "
            f"label(s). {' '.join(missing.values())}"
        )
    return [
        *engine.argv,
        "run",
        "--detach",
        f"--name={container_name(plan.folder)}",
        f"--label={COPY_LABEL}={plan.folder}",
        f"--label={INSTANCE_LABEL}={plan.folder.parent.parent}",
        "--pull=never",
        "--restart=no",
        "--stop-signal=SIGTERM",
        *_engine_options(engine),
        *_network(order, image),
        *_confinement(),
        *_limits(order),
        *_devices(engine, order.devices),
        *_environment(plan),
        *_mounts({MODEL_PATH: order.model_folder, **order.mounts}),
        image.id,
        *plan.arguments,
    ]


def environment_file(environment: Mapping[str, str]) -> str:
    """The text of an engine's --env-file, without the variables such a file cannot hold."""
    return "".join(f"{k}={v}\n" for k, v in environment.items() if fits_a_line(v))


def inherited_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a container takes from the environment of the engine's own command."""
    return {name: value for name, value in environment.items() if not fits_a_line(value)}


def parse_images(text: bytes) -> ImageFacts:
    """The image in the output of `image inspect`. Raises ValueError for other text."""
    row = json.loads(text)[0]
    labels = (row.get("Config") or {}).get("Labels") or {}
    return ImageFacts(id=str(row["Id"]), labels={str(k): str(v) for k, v in labels.items()})


def parse_state(text: bytes) -> ContainerState:
    """The state in the output of `inspect`. Raises ValueError for other text."""
    state = json.loads(text)[0]["State"]
    pid = int(state.get("Pid") or 0)
    return ContainerState(
        running=bool(state.get("Running")),
        pid=pid if pid > 0 else None,
        exit_code=int(state.get("ExitCode") or 0),
        out_of_memory=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
    )


def describe_container_exit(
    state: ContainerState, max_memory_bytes: int | None, kernel_kills: int = 0
) -> str:
    """Describe how a container ended.

    `kernel_kills` are the processes that the kernel killed in the container's last second because
    memory ran out. Podman does not report this if the first process itself is killed.

    out of memory, with a limit      -> the limit
    out of memory, without a limit   -> the machine's memory
    the engine gives an error        -> that error
    exit code above 128              -> the signal
    otherwise                        -> the exit code
    """
    starved = state.out_of_memory or (state.exit_code == KILLED and kernel_kills > 0)
    if starved and max_memory_bytes is not None:
        return (
            "The container was killed for its memory: it needed more than its limit of "
            f"{max_memory_bytes // MIB} MB ({MEMORY_FIELDS}). Raise the limit, "
            "or have the model hold less."
        )
    if starved:
        return (
            "The container was killed for its memory: this machine ran out of it. Give the model a "
            "larger instance type, or have it hold less."
        )
    if state.error:
        return f"The container ended: {state.error}."
    if state.exit_code > 128:
        return f"The container was ended by signal {state.exit_code - 128}."
    return f"The container exited with code {state.exit_code}."


def describe_failed_run(image: str, words: str) -> str:
    """Describe why an engine could not start a container, with advice if the cause is known."""
    text = f'The container of image "{image}" cannot be started: {words}'
    if any(sign in words.lower() for sign in NO_PROGRAM):
        text += (
            " (the image needs an ENTRYPOINT that takes the argument serve, or an executable named "
            "serve on its PATH)"
        )
    return text


def last_lines(printed: bytes) -> str:
    """The end of an engine's output, as one line."""
    lines = [line.decode("utf-8", "replace").strip() for line in printed.splitlines()]
    return " ".join(line for line in lines[-4:] if line)[-600:] or "it printed nothing"


def _engine_options(engine: EngineFacts) -> list[str]:
    if engine.kind == "docker":
        return ["--log-driver=local", "--log-opt=max-size=8m", "--log-opt=max-file=2"]
    # The container writes to the copy's log itself. So a full disk ends neither it nor a follower.
    return [
        "--log-driver=passthrough",
        "--http-proxy=false",
        f"--ulimit=nofile={engine.max_files}:{engine.max_files}",
        f"--ulimit=nproc={engine.max_processes}:{engine.max_processes}",
    ]


def _network(order: ContainerOrder, image: ImageFacts) -> list[str]:
    if order.network == "none":
        return ["--network=none"]
    if order.network == "bridge":
        return ["--network=bridge", f"--publish=127.0.0.1:{order.port}:{INNER_PORT}"]
    if not image.binds_to_port:
        raise TerminalError(
            f'The image "{order.image}" has no label {BIND_LABEL}=true, so its server listens on '
            f"{INNER_PORT} and would collide with other copies on the machine's own network. Add "
            'the label and listen on SAGEMAKER_BIND_TO_PORT, or set network = "none" or "bridge".'
        )
    return ["--network=host"]


def _confinement() -> list[str]:
    return [
        "--cap-drop=ALL",
        *(f"--cap-add={name}" for name in CAPABILITIES),
        "--security-opt=no-new-privileges",
        f"--pids-limit={MAX_PROCESSES}",
        f"--shm-size={SHARED_MEMORY}",
    ]


def _missing_labels(order: ContainerOrder, image: ImageFacts) -> dict[str, str]:
    """The labels that the image lacks, each with the requirement for its server."""
    missing = {}
    if order.is_one_of_several and not image.binds_to_port:
        missing[f"{BIND_LABEL}=true"] = (
            "Each container of a model of several must listen on SAGEMAKER_BIND_TO_PORT."
        )
    if order.is_multi_model and not image.loads_models:
        missing[f"{MODELS_LABEL}=true"] = (
            "With Mode MultiModel its server must have the routes of docs/multi-model.md."
        )
    return missing


def _limits(order: ContainerOrder) -> list[str]:
    limits = []
    if order.cpus is not None:
        limits.append(f"--cpus={order.cpus:g}")
    if order.max_memory_bytes is not None:
        # The same limit for memory and swap together means no swap.
        memory = order.max_memory_bytes
        limits += [f"--memory={memory}b", f"--memory-swap={memory}b"]
    return limits


def _devices(engine: EngineFacts, devices: Sequence[str]) -> list[str]:
    if not devices:
        return []
    if engine.kind == "docker":
        # Docker reads the value as CSV, so a list of devices is one quoted field.
        return [f'--gpus="device={",".join(devices)}"']
    return [f"--device=nvidia.com/gpu={name}" for name in devices]


def _environment(plan: ContainerPlan) -> list[str]:
    return [
        f"--env-file={plan.environment_file}",
        *(f"--env={name}" for name in inherited_variables(plan.environment)),
        f"--env={MARKER_VARIABLE}={plan.folder}",
    ]


def _mounts(mounts: Mapping[str, Path]) -> list[str]:
    return [
        f"--mount=type=bind,source={_plain(source)},target={_plain(PurePosixPath(target))},readonly"
        for target, source in mounts.items()
    ]


def _plain(path: PurePath) -> PurePath:
    if any(sign in str(path) for sign in ',"\n'):
        raise TerminalError(
            f"{path} has a comma, quote or line break in it and cannot be mounted into a container;"
            " move the home folder"
        )
    return path
