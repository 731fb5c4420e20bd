"""Settings of the engine process, and the options that set them. Pure."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hostelry.containers.lmi.refusal import Surface
from hostelry.containers.lmi.request.sampling import MAX_ALL_SEQUENCES
from hostelry.containers.lmi.settings.option_reader import (
    OptionReader,
    invalid_setting,
    whole_number,
)
from hostelry.containers.lmi.settings.option_rows import NOTHING_ASKED
from hostelry.containers.lmi.settings.option_values import (
    parse_most_images,
    parse_policies,
    parse_policy,
    read_pooled,
)
from hostelry.containers.lmi.settings.options import Options, Setting
from hostelry.containers.lmi.settings.ranks import CPU_RANKS_VARIABLE, MAX_DEGREE, Degree
from hostelry.containers.lmi.settings.ranks import OPTION as RANKS_OPTION
from hostelry.engine.config import ADAPTER_CACHE_BYTES, EngineConfig
from hostelry.engine.scheduler.tenants import TenantPolicies, TenantPolicy

MAX_BATCH_SIZES: Mapping[Surface, int] = {
    Surface.ASYNC: 32,
    Surface.LEGACY: 256,
    Surface.OPENAI: 256,
}

DTYPES: Mapping[str, str] = {
    "auto": "auto",
    "fp32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "fp16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "bf16": "bf16",
    "bfloat16": "bf16",
}
# The operator who starts the server sets them, not the model's author.
CACHE_VARIABLE = "HOSTELRY_ADAPTER_CACHE_DIR"
DEVICE_SHARE = "HOSTELRY_ACCELERATOR_SHARE"


class EngineSettings(EngineConfig, frozen=True, kw_only=True):
    """Settings of the engine process: our engine's, and more for the process and for vLLM.

    `degree` is the asked `tensor_parallel`, which the engine's process chooses by the devices that
    it sees (`ranks.choose_ranks`). `accelerators` are reserved, None without a reservation.

    Only vLLM reads `pipeline_parallel` and the fields after `cpu_ranks`. `max_images` are the most
    images of a request, and None leaves the choice to vLLM. With `batch_by_device` no option gave
    `max_batch_size`. `device_share` is this server's share of each of its GPUs. `vllm` are
    arguments of vLLM's engine as options give them.
    """

    tenants: TenantPolicies = msgspec.field(default_factory=TenantPolicies)
    degree: Degree | None = None
    pipeline_parallel: int = 1
    accelerators: float | None = None
    cpu_ranks: bool = False
    enable_lora: bool = False
    enforce_eager: bool | None = None
    max_images: int | None = None
    batch_by_device: bool = False
    max_cpu_loras: int | None = None
    device_share: float = 1.0
    vllm: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def use_accelerators(self) -> bool:
        """False if the copy reserves none."""
        return self.accelerators != 0


def read_engine_settings(
    options: Options,
    read: OptionReader,
    env: Mapping[str, str],
    machine_cpus: int,
    dialect: Surface,
) -> EngineSettings:
    """The engine's settings. Raises ConfigurationError."""
    dtype = DTYPES[read.choice("dtype", "auto", tuple(DTYPES))]
    max_batch_size = read.integer("max_rolling_batch_size", MAX_BATCH_SIZES[dialect], 1)
    model_id = read.text("model_id")
    max_loras = read.optional_integer("max_loras", 1)
    enable_lora = read.flag("enable_lora", False)
    return EngineSettings(
        dtype=dtype,
        weight_dtype=weight_dtype(options, dtype),
        num_threads=cpu_threads(env, machine_cpus),
        max_batch_size=max_batch_size,
        max_batched_tokens=read.optional_integer("max_rolling_batch_prefill_tokens", 1),
        max_model_len=read.optional_integer("max_model_len", 2),
        max_loras=max_loras,
        max_waiting=max(read_queue_size(read) + max_batch_size, MAX_ALL_SEQUENCES),
        pool_bytes=read.optional_integer("pool_bytes", 1),
        prefix_cache=read.flag("enable_prefix_caching", True),
        adapter_host_bytes=read.optional_integer("adapter_host_bytes", 1),
        adapter_cache_folder=adapter_cache(env),
        adapter_cache_bytes=read.integer("adapter_cache_bytes", ADAPTER_CACHE_BYTES, 1),
        max_lora_rank=read.integer("max_lora_rank", 16, 1),
        base_names=(model_id,) if model_id else (),
        fuse_adapter=fused_adapter(options, enable_lora=enable_lora),
        pooled=read_pooled(read),
        tenants=TenantPolicies(
            default=read.parse("default_tenant", parse_policy) or TenantPolicy(),
            table=read.parse("tenants", parse_policies) or {},
        ),
        degree=read_degree(options),
        pipeline_parallel=read.integer("pipeline_parallel_degree", 1, 1),
        accelerators=get_reservation(env, "HOSTELRY_ACCELERATORS"),
        cpu_ranks=env.get(CPU_RANKS_VARIABLE) == "1",
        enable_lora=enable_lora,
        enforce_eager=read.flag("enforce_eager", True) if read.text("enforce_eager") else None,
        max_images=read.parse("limit_mm_per_prompt", parse_most_images),
        batch_by_device=read.text("max_rolling_batch_size") is None,
        max_cpu_loras=read.optional_integer("max_cpu_loras", max_loras or 1),
        device_share=device_share(env),
    )


def read_degree(options: Options) -> Degree | None:
    """The asked number of ranks: a whole number, max, or None. Raises ConfigurationError."""
    setting = options.settings.get(RANKS_OPTION)
    value = "" if setting is None else setting.value.strip().lower()
    if setting is None or value in NOTHING_ASKED:
        return None
    return "max" if value == "max" else whole_number(setting, 1, MAX_DEGREE)


def read_queue_size(read: OptionReader) -> int:
    """The requests that may wait while the batch is full. Raises ConfigurationError."""
    return read.integer("job_queue_size", 1000, 0)


def weight_dtype(options: Options, dtype: str) -> str:
    """The weights' type in our own engine: int8, or as stored.

    Raises ConfigurationError if the cache has another computing type.
    """
    cache = options.settings.get("kv_cache_dtype")
    if cache and DTYPES.get(cache.value.lower(), "auto") not in ("auto", dtype):
        raise invalid_setting(cache, f"auto, or the option dtype ({dtype})")
    kind = options.settings.get("quantize")
    return "int8" if kind is not None and kind.value.lower() == "int8" else "auto"


def fused_adapter(options: Options, *, enable_lora: bool) -> str | None:
    """The name of the adapter to merge. Raises ConfigurationError if it is not a single name."""
    setting, quantize = options.settings.get("fuse_adapter"), options.settings.get("quantize")
    if setting is None:
        return None
    if not enable_lora:
        raise invalid_setting(setting, "left out without enable_lora=true")
    if not setting.value.isprintable() or set(setting.value) & set('/,= [{"'):
        raise invalid_setting(setting, "the name of one adapter, without spaces and / , = [ {")
    if quantize is not None and quantize.value.lower() == "int8":
        raise invalid_setting(
            setting, "left out with quantize=int8: 8-bit weights are too coarse for its update"
        )
    return setting.value


def adapter_cache(env: Mapping[str, str]) -> Path | None:
    """The cache folder of remote adapters. None for no cache."""
    folder = env.get(CACHE_VARIABLE)
    if folder and not folder.startswith("/"):
        raise invalid_setting(Setting(folder, CACHE_VARIABLE), "an absolute path")
    return Path(folder) if folder else None


def device_share(env: Mapping[str, str]) -> float:
    """This server's share of each of its GPUs, which the fleet sets. Raises ConfigurationError."""
    share = get_reservation(env, DEVICE_SHARE)
    if share is None:
        return 1.0
    if not 0 < share <= 1:
        raise invalid_setting(Setting(env[DEVICE_SHARE], DEVICE_SHARE), "above 0, at most 1")
    return share


def cpu_threads(env: Mapping[str, str], machine_cpus: int) -> int | None:
    """OMP_NUM_THREADS, else the reserved CPUs rounded up. None if neither is set.

    At least one, and at most the machine's CPUs: a declared instance type may have more CPUs than
    this machine, and more threads than CPUs are slow.
    """
    threads = env.get("OMP_NUM_THREADS", "")
    given = whole_number(Setting(threads, "OMP_NUM_THREADS"), 0) if threads.isdecimal() else None
    cpus = given or get_reservation(env, "HOSTELRY_CPUS")
    return max(1, min(math.ceil(cpus), machine_cpus)) if cpus else None


def get_reservation(env: Mapping[str, str], variable: str) -> float | None:
    """A number of the copy's reservation. None if unset."""
    text = env.get(variable)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise invalid_setting(Setting(text, variable), "a number, 0 or more")
    return value
