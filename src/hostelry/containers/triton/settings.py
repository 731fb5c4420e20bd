"""Settings of Triton from a container's variables. Pure.

Source: the `serve` program of AWS's image (docker/sagemaker in Triton's repository).
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.containers.predictive.config import MEMORY, QUEUE_SIZE, TIMEOUT, TIMEOUT_SECONDS
from hostelry.containers.triton.model_folder import DEFAULT_NAME
from hostelry.containers.variables import MAX_PAYLOAD, MIB, whole

PREFIX = "SAGEMAKER_TRITON_"
INFERENCE_TYPE = f"{PREFIX}INFERENCE_TYPE"
REFUSED: Mapping[str, str] = {
    f"{PREFIX}ADDITIONAL_ARGS": "options of tritonserver are the operator's; of AWS's variables "
    "those for logs, threads and shared memory are read",
    f"{PREFIX}TENSORFLOW_VERSION": "the server's own version of the backend is used",
}
# They have no purpose here: the server has no other port, and its own repository.
WITHOUT_EFFECT = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "ALLOW_GRPC", "ALLOW_METRICS", "DISABLE_MODEL_NAMESPACING", "GRPC_PORT", "METRICS_PORT",
        "OVERRIDE_PING_MODE", "PING_MODE",
    )
)  # fmt: skip
LOGS = ("LOG_INFO", "LOG_WARNING", "LOG_ERROR")
TRUE, FALSE = ("true", "1"), ("false", "0")
MAX_SHM_BYTES = 1 << 34
LOAD_LIMIT = f"{PREFIX}MODEL_LOAD_GPU_LIMIT"


class TritonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a copy.

    `options` are tritonserver's. `shm_bytes` is the shared memory of one instance.
    """

    default_name: str
    inference: str
    options: tuple[str, ...]
    shm_bytes: int
    timeout_s: float
    max_request_bytes: int
    max_queued: int
    memory_bytes: int | None


def resolve(env: Mapping[str, str]) -> TritonSettings:
    """Read the settings. Raises TerminalError with the variable, its value and its limits."""
    for name, reason in REFUSED.items():
        if env.get(name, "").strip():
            raise TerminalError(f"{name} is not taken here: {reason}")
    inference = env.get(INFERENCE_TYPE) or "infer"
    if inference not in ("infer", "generate"):
        raise TerminalError(f"{INFERENCE_TYPE} is {inference[:40]!r}; it must be infer or generate")
    shm_bytes = whole(env, f"{PREFIX}SHM_DEFAULT_BYTE_SIZE", 16 * MIB, MIB, MAX_SHM_BYTES)
    growth_bytes = whole(env, f"{PREFIX}SHM_GROWTH_BYTE_SIZE", MIB, 4096, MAX_SHM_BYTES)
    return TritonSettings(
        default_name=env.get(DEFAULT_NAME, ""),
        inference=inference,
        options=(
            f"--backend-config=python,shm-default-byte-size={shm_bytes}",
            f"--backend-config=python,shm-growth-byte-size={growth_bytes}",
            *build_log_options(env),
            *build_thread_options(env),
            *build_gpu_options(env),
        ),
        shm_bytes=shm_bytes,
        timeout_s=whole(env, TIMEOUT_SECONDS, whole(env, TIMEOUT, 60, 1, 3600), 1, 3600),
        max_request_bytes=whole(env, MAX_PAYLOAD, 100, 1, 2047) * MIB,
        max_queued=whole(env, QUEUE_SIZE, 1000, 1, 1_000_000),
        memory_bytes=whole(env, MEMORY, 0, 0, 1 << 60) or None,
    )


def build_log_options(env: Mapping[str, str]) -> Sequence[str]:
    """Options of the log. The default is everything except verbose lines, as in AWS's image."""
    verbose = (env.get(f"{PREFIX}LOG_VERBOSE") or "0").lower()
    level = {"true": 1, "false": 0}.get(verbose, -1)
    if level < 0:
        level = whole(env, f"{PREFIX}LOG_VERBOSE", 0, 0, 9)
    options = [f"--log-verbose={level}"]
    for name in LOGS:
        text = (env.get(f"{PREFIX}{name}") or "true").lower()
        if text not in TRUE + FALSE:
            raise TerminalError(f"{PREFIX}{name} is {text[:40]!r}; it must be true or false")
        options.append(f"--{name.lower().replace('_', '-')}={str(text in TRUE).lower()}")
    return options


def build_thread_options(env: Mapping[str, str]) -> Iterable[str]:
    """Options of the server's threads."""
    for name, option in (
        ("THREAD_COUNT", "http-thread-count"),
        ("BUFFER_MANAGER_THREAD_COUNT", "buffer-manager-thread-count"),
    ):
        count = whole(env, f"{PREFIX}{name}", 0, 1, 256)
        if count:
            yield f"--{option}={count}"


def build_gpu_options(env: Mapping[str, str]) -> Iterable[str]:
    """Options with the share of each accelerator's memory above which no model is loaded."""
    text = env.get(LOAD_LIMIT, "").strip()
    if not text:
        return
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise TerminalError(f"{LOAD_LIMIT} is {text[:40]!r}; it must be a part from 0 to 1")
    visible = env.get("CUDA_VISIBLE_DEVICES", "")
    for number, _ in enumerate(it for it in visible.split(",") if it.strip()):
        yield f"--model-load-gpu-limit={number}:{share:g}"


def list_without_effect(env: Mapping[str, str]) -> list[str]:
    """The given variables that have no effect here, for the log."""
    return sorted(WITHOUT_EFFECT & env.keys())
