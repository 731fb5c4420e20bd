"""The settings of a framework model server, from its variables. Pure."""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import find_installed, runtime_python, runtimes_folder, why_closed
from hostelry.containers.variables import MAX_PAYLOAD, MIB, OWN_MODEL_DIR, reserved_cpus, whole

WORKERS = "SAGEMAKER_MODEL_SERVER_WORKERS"
TIMEOUT = "SAGEMAKER_MODEL_SERVER_TIMEOUT"
TIMEOUT_SECONDS = "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS"
SUBMIT_DIRECTORY = "SAGEMAKER_SUBMIT_DIRECTORY"
BATCH_SIZE = "SAGEMAKER_TS_BATCH_SIZE"
BATCH_DELAY = "SAGEMAKER_TS_MAX_BATCH_DELAY"
MEMORY = "HOSTELRY_MEMORY_BYTES"
QUEUE_SIZE = "SAGEMAKER_MODEL_JOB_QUEUE_SIZE"
MODULES: Mapping[str, tuple[str, ...]] = {
    "autogluon": ("numpy", "pandas", "autogluon.tabular"),
    "huggingface": ("numpy", "torch", "transformers", "transformers.pipelines"),
    "pytorch": ("numpy", "torch"),
    "sklearn": ("numpy", "scipy", "sklearn"),
    "tensorflow": ("numpy", "tensorflow"),
    "xgboost": ("numpy", "scipy.sparse", "xgboost"),
}  # the modules that the zygote imports
# Further modules that the zygote imports once for all its forks:
TOOLKIT = tuple(
    f"sagemaker_inference.{name}"
    for name in ("transformer", "default_inference_handler", "decoder", "encoder", "content_types")
)
MULTI_MODEL_MODULES: Mapping[str, tuple[str, ...]] = {
    "sklearn": (
        *("joblib", "pandas"),
        *(
            f"sklearn.{name}"
            for name in (
                "calibration", "cluster", "compose", "decomposition", "ensemble",
                "feature_extraction.text", "impute", "linear_model", "model_selection",
                "naive_bayes", "neighbors", "neural_network", "pipeline", "preprocessing", "svm",
                "tree",
            )
        ),
    ),
    "xgboost": ("joblib", "xgboost.sklearn"),
}  # fmt: skip
# A worker's body lengths are 32-bit numbers.
LARGEST_PAYLOAD_MB = 2047

LOG = logging.getLogger("hostelry.containers.predictive")


class PredictiveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one copy.

    `python` is the runtime's interpreter. `code_dir` has the model's code, or does not exist. With
    a `batch_size` above 1 a request waits at most `batch_delay_s` for others. `memory_bytes` limits
    the models of a multi-model server.
    """

    framework: str
    python: Path
    model_dir: Path
    code_dir: Path
    num_workers: int
    threads_per_worker: int
    predict_timeout_s: float
    max_request_bytes: int
    max_queued: int
    batch_size: int
    batch_delay_s: float
    multi_model: bool = False
    memory_bytes: int | None = None


def resolve(
    env: Mapping[str, str],
    framework: str,
    python: Path,
    model_dir: Path,
    machine_cpus: int,
    multi_model: bool = False,
) -> PredictiveConfig:
    """Read the settings. Raises TerminalError with the variable, its value and its limits.

    A declared instance type may have more CPUs than this machine: more workers than `machine_cpus`
    would start for minutes and serve no faster.
    """
    if framework not in MODULES:
        known = ", ".join(sorted(MODULES))
        raise TerminalError(f"--framework is {framework!r}; it must be one of {known}")
    if not multi_model and not model_dir.is_dir():
        raise TerminalError(
            f"the model folder {model_dir} does not exist; name it with --model-dir or "
            "HOSTELRY_MODEL_DIR"
        )
    cpus = min(reserved_cpus(env, machine_cpus), machine_cpus)
    num_workers = whole(env, WORKERS, 1 if multi_model else max(1, math.floor(cpus)), 1, 1024)
    timeout = whole(env, TIMEOUT, 60, 1, 3600)
    return PredictiveConfig(
        framework=framework,
        python=python,
        model_dir=model_dir,
        code_dir=find_code_folder(env, model_dir),
        num_workers=num_workers,
        threads_per_worker=1 if multi_model else max(1, math.floor(cpus / num_workers)),
        predict_timeout_s=whole(env, TIMEOUT_SECONDS, timeout, 1, 3600),
        max_request_bytes=whole(env, MAX_PAYLOAD, 100, 1, LARGEST_PAYLOAD_MB) * MIB,
        max_queued=whole(env, QUEUE_SIZE, 1000, 1, 1_000_000),
        batch_size=whole(env, BATCH_SIZE, 1, 1, 1024),
        batch_delay_s=whole(env, BATCH_DELAY, 100, 0, 60_000) / 1000,
        multi_model=multi_model,
        memory_bytes=whole(env, MEMORY, 0, 0, 1 << 60) or None,
    )


def find_code_folder(env: Mapping[str, str], model_dir: Path) -> Path:
    """The folder of the model's code: SAGEMAKER_SUBMIT_DIRECTORY, or code/ of the model.

    Raises TerminalError if the named folder does not exist.
    """
    given = env.get(SUBMIT_DIRECTORY, "").removeprefix("file://")
    if not given:
        return model_dir / "code"
    if ".." in Path(given).parts:
        raise TerminalError(f"{SUBMIT_DIRECTORY} is {given[:200]!r}; leave out the ..")
    if given == OWN_MODEL_DIR or given.startswith(OWN_MODEL_DIR + "/"):
        return model_dir / given.removeprefix(OWN_MODEL_DIR).strip("/")
    if not Path(given).is_dir():
        raise TerminalError(
            f"{SUBMIT_DIRECTORY} is {given[:200]!r}, which is no folder here; give a folder of the "
            f"model ({OWN_MODEL_DIR}/code) or an archive in S3"
        )
    return Path(given)


def find_interpreter(env: Mapping[str, str], runtime: str | None, python: str | None) -> Path:
    """The runtime's interpreter. Raises TerminalError with a remedy."""
    if python is not None:
        return Path(python)
    if not runtime:
        raise TerminalError("name the runtime with --runtime, or an interpreter with --python")
    folder = runtimes_folder(env)
    record = find_installed(folder, runtime)
    if record is None:
        raise TerminalError(
            why_closed(folder, runtime)
            or f"the runtime {runtime} is not installed in {folder}: hostelry runtimes install "
            f"{runtime.replace('-', ':', 1)}"
        )
    if record.lacks:
        LOG.warning("the runtime %s is not AWS's: %s", runtime, record.lacks)
    return runtime_python(folder, runtime)
