"""The rule which engine serves."""

from pathlib import Path

import pytest
from tests.cases import case, cases

from hostelry.base.runtimes import Runtime
from hostelry.containers.lmi.settings.config import LmiConfig, resolve_config
from hostelry.containers.lmi.settings.engine_terms import Backend
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.vllm.choice import EngineHost, choose_engines, describe_host

OURS, VLLM = Backend.HOSTELRY, Backend.VLLM
MISSING = "vLLM is not installed in /runtimes: hostelry runtimes install vllm"
CPU = EngineHost()
GPU = EngineHost(has_gpu=True, is_vllm_for_gpus=True)
NO_VLLM = EngineHost(missing=MISSING)
GPU_ALONE = EngineHost(has_gpu=True, missing=MISSING)
GPU_AND_VLLM_FOR_CPUS = EngineHost(has_gpu=True)


def config(**options: str) -> LmiConfig:
    env = {f"OPTION_{name.upper()}": it for name, it in options.items()}
    return resolve_config(
        {**env, "HOSTELRY_RUNTIMES_DIR": "/runtimes"}, "", ["config.json"], Path("/model"), 4
    )


def runtime(device: str) -> Runtime:
    return Runtime(
        name="vllm", device=device, python="3.12", packages={}, installed_at="", install_s=1,
        num_bytes=1,
    )  # fmt: skip


@cases(
    "options, host, tried, reason",
    case("on CPUs ours, then vLLM", {}, CPU, (OURS, VLLM), "measured faster"),
    case("on a GPU vLLM, then ours", {}, GPU, (VLLM, OURS), "never measured faster"),
    case("without vLLM ours alone", {}, NO_VLLM, (OURS,), MISSING),
    case("also on a GPU", {}, GPU_ALONE, (OURS,), MISSING),
    case("on a GPU, and vLLM is for CPUs", {},
        GPU_AND_VLLM_FOR_CPUS, (OURS, VLLM), "the installed vLLM is for CPUs"),
    case("more adapters in a step than vLLM has slots", {"max_loras": "100"}, GPU, (OURS, VLLM),
        "option.max_loras is 100, and vLLM has at most 64 slots"),
    case("as many adapters as vLLM has slots", {"max_loras": "64"}, GPU, (VLLM, OURS), "GPU"),
    case("ours, as asked", {"backend": "hostelry"}, GPU, (OURS,), "option.backend"),
    case("vLLM, as asked", {"backend": "vllm"}, CPU, (VLLM,), "option.backend"),
    case("LMI's way to ask for vLLM", {"rolling_batch": "vllm"}, CPU, (VLLM,), "rolling_batch"),
    case("which is not there", {"rolling_batch": "vllm"}, NO_VLLM, (OURS,), MISSING),
    case("backend is before", {"rolling_batch": "vllm", "backend": "hostelry"}, CPU, (OURS,),
        "option.backend"),
    case("another batch", {"rolling_batch": "lmi-dist"}, CPU, (OURS, VLLM), "CPUs"),
    case("an option of vLLM alone", {"kv_cache_dtype": "fp8"}, CPU, (VLLM,),
        "OPTION_KV_CACHE_DTYPE is 'fp8'; with our own engine it must be auto"),
    case("an option of ours alone", {"task": "embed"}, GPU, (OURS,),
        "OPTION_TASK is 'embed'; with vLLM it must be auto or generate"),
    case("an option of ours is before LMI's way to ask for vLLM",
        {"rolling_batch": "vllm", "quantize": "int8"}, CPU, (OURS,), "with vLLM it must be left"),
    case("an option that has no effect with ours changes nothing",
        {"gpu_memory_utilization": "0.5"}, CPU, (OURS, VLLM), "CPUs"),
)  # fmt: skip
def test_choice(
    options: dict[str, str], host: EngineHost, tried: tuple[Backend, ...], reason: str
) -> None:
    choice = choose_engines(config(**options), host)
    assert choice.engines == tried
    assert reason in choice.reason


@cases(
    "options, message",
    case("by name", {"backend": "vllm"}, "option.backend is vllm, but vLLM is not installed"),
    case("by an option", {"kv_cache_dtype": "fp8"}, "vLLM may do it, but vLLM is not installed"),
)
def test_vllm_that_is_not_there_is_refused_with_what_would_help(
    options: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"{message}.*hostelry runtimes install vllm"):
        choose_engines(config(**options), NO_VLLM)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="one of auto, hostelry, vllm"):
        config(backend="sglang")


@cases(
    "installed, env, nodes, host",
    case("nothing is installed", None, {}, [], NO_VLLM),
    case("for CPUs, without a GPU", "cpu", {}, ["null"], CPU),
    case("for CUDA, with a GPU", "cuda", {}, ["nvidia0", "nvidiactl"], GPU),
    case("the first of several GPUs", "cuda", {"CUDA_VISIBLE_DEVICES": "GPU-ab,2"}, ["nvidia2"],
        GPU),
    case("for CPUs, with a GPU", "cpu", {"HOSTELRY_ACCELERATORS": "1"}, ["nvidia0"],
        GPU_AND_VLLM_FOR_CPUS),
    case("no GPU is reserved", "cpu", {"HOSTELRY_ACCELERATORS": "0"}, ["nvidia0"], CPU),
    case("a GPU is declared that the machine lacks", "cpu",
        {"HOSTELRY_ACCELERATORS": "1", "CUDA_VISIBLE_DEVICES": ""}, [], CPU),
    case("for CUDA, and no GPU is visible", "cuda", {"CUDA_VISIBLE_DEVICES": "-1"}, ["nvidia0"],
        EngineHost(is_vllm_for_gpus=True,
             missing="the installed vLLM is for CUDA, and this server has no GPU")),
)  # fmt: skip
def test_what_the_server_can_use(
    installed: str | None, env: dict[str, str], nodes: list[str], host: EngineHost
) -> None:
    found = runtime(installed) if installed else None
    assert describe_host(found, "/runtimes", env, nodes) == host
