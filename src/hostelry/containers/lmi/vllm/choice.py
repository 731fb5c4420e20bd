"""The rule which engine serves a model. Pure.

in this order                                        engine
---------------------------------------------------  -------------------------------------------
option.backend is hostelry or vllm                   that one. Without vLLM's runtime: refused
vLLM is not installed, or cannot compute here        ours
an option that only one of them follows              that one
rolling_batch is vllm                                vLLM
no GPU, or the installed vLLM is for CPUs            ours, then vLLM if ours cannot read the model
option.max_loras is above MOST_SLOTS                 ours, then vLLM if ours cannot read the model
otherwise                                            vLLM, then ours if vLLM cannot read the model

docs/benchmarks.md has the measurements on CPUs. On GPUs the two engines were never compared.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec

from hostelry.base.runtimes import Runtime
from hostelry.containers.lmi.settings.config import LmiConfig
from hostelry.containers.lmi.settings.engine_terms import Backend
from hostelry.containers.lmi.settings.option_reader import ConfigurationError
from hostelry.containers.lmi.vllm.sizes import MOST_SLOTS

OURS, VLLM = Backend.HOSTELRY, Backend.VLLM
NVIDIA_NODE = re.compile(r"nvidia\d+")


class EngineHost(msgspec.Struct, frozen=True, kw_only=True):
    """What this server can use: a GPU, and the installed vLLM, which is built for a device.

    `missing` is why vLLM cannot start.
    """

    has_gpu: bool = False
    missing: str | None = None
    is_vllm_for_gpus: bool = False


class EngineChoice(msgspec.Struct, frozen=True):
    """The engines to try, in this order, and why the first is first."""

    engines: tuple[Backend, ...]
    reason: str


def describe_host(
    runtime: Runtime | None, folder: str, env: Mapping[str, str], nodes: Iterable[str]
) -> EngineHost:
    """The host by the runtime of vLLM in `folder`, this process's variables and names in /dev."""
    visible = env.get("CUDA_VISIBLE_DEVICES", "all").split(",")[0].strip()
    reserves_none = env.get("HOSTELRY_ACCELERATORS") == "0"
    has_node = any(NVIDIA_NODE.fullmatch(it) for it in nodes)
    has_gpu = has_node and visible not in ("", "-1") and not reserves_none
    for_gpus = runtime is not None and runtime.device == "cuda"
    missing = None
    if runtime is None:
        missing = f"vLLM is not installed in {folder}: hostelry runtimes install vllm"
    elif for_gpus and not has_gpu:
        missing = "the installed vLLM is for CUDA, and this server has no GPU"
    return EngineHost(has_gpu=has_gpu, missing=missing, is_vllm_for_gpus=for_gpus)


def choose_engines(config: LmiConfig, host: EngineHost) -> EngineChoice:
    """The engines for this configuration. Raises ConfigurationError."""
    missing = host.missing
    if config.backend is OURS:
        return EngineChoice((OURS,), "option.backend is hostelry")
    if config.backend is VLLM:
        if missing is not None:
            raise ConfigurationError(f"option.backend is vllm, but {missing}")
        return EngineChoice((VLLM,), "option.backend is vllm")
    not_ours, not_vllm = config.terms.ours.refusals, config.terms.vllm.refusals
    if not_ours and missing is not None:
        raise ConfigurationError(f"{not_ours[0]}. vLLM may do it, but {missing}")
    if not_ours:
        return EngineChoice((VLLM,), not_ours[0])
    if missing is not None:
        return EngineChoice((OURS,), missing)
    if not_vllm:
        return EngineChoice((OURS,), not_vllm[0])
    if config.rolling_batch_is_vllm:
        return EngineChoice((VLLM,), "option.rolling_batch is vllm")
    return choose_by_device(config.engine.max_loras, host)


def choose_by_device(max_loras: int | None, host: EngineHost) -> EngineChoice:
    """The engines for a model that either engine may serve. `max_loras` is the option."""
    if not host.has_gpu:
        reason = "it computes on CPUs, where our own engine is measured faster"
    elif not host.is_vllm_for_gpus:
        reason = "this server has a GPU, and the installed vLLM is for CPUs"
    elif max_loras is not None and max_loras > MOST_SLOTS:
        reason = (
            f"option.max_loras is {max_loras}, and vLLM has at most {MOST_SLOTS} slots of adapters"
        )
    else:
        reason = "it computes on a GPU, where our own engine was never measured faster than vLLM"
        return EngineChoice((VLLM, OURS), reason)
    return EngineChoice((OURS, VLLM), reason)
