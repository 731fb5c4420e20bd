"""Settings of an engine."""

from dataclasses import dataclass
from pathlib import Path

from hostelry.engine.pooled import POOLING_MODES

DTYPES = ("fp32", "bf16", "fp16")
WEIGHT_DTYPES = ("auto", "int8")
KERNELS = ("auto", "native", "torch")
TASKS = ("auto", "generate", "embed", "classify")


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledTask:
    """What the model is for; `pooling` and `normalize` None are as its files say.

    `task` auto: as the model's files say, see `models.pooling_files`. Of a pooled model at least
    `max_waiting` texts may queue, as one request has many. Raises ValueError.
    """

    task: str = "auto"
    pooling: str | None = None
    normalize: bool | None = None
    max_waiting: int = 1

    def __post_init__(self) -> None:
        """Check both names."""
        if self.task not in TASKS:
            raise ValueError(f"task is {self.task!r}; it must be one of {', '.join(TASKS)}")
        if self.pooling is not None and self.pooling not in POOLING_MODES:
            raise ValueError(
                f"pooling is {self.pooling!r}; it must be one of {', '.join(POOLING_MODES)}"
            )


AS_THE_FILES_SAY = PooledTask()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine; raises ValueError where one is out of range.

    Computing: `dtype` auto is the stored one. `weight_dtype` int8 keeps the products' weights as
    8-bit numbers with a scale for each output (CPU with native kernels). `kernels` auto takes the
    native ones where a CPU has them, torch's otherwise. `num_threads` None is every CPU this
    process may use; threads are bound to CPUs where that is all of them. `tensor_parallel` is the
    number of processes that hold the model together, this one included: each on a GPU of its own,
    or with a part of the CPU's threads; they compute with torch.

    A step: at most `max_batch_size` requests and `max_batched_tokens` tokens, but at least one for
    each request; `max_loras` distinct adapters (None: any number). `max_model_len` None is the
    model's own. `max_waiting` requests may queue; beyond, the server is full. A request that pages
    or adapters kept waiting for `max_wait_s` gets the next that come free.

    Memory: `pool_bytes` is the one pool of pages of `page_tokens` tokens for KV cache and adapters
    together, on all ranks; None is an eighth of the machine's memory, or most of what GPUs have
    left, and no more than full batches and as much again for adapters can use. `prefix_cache` keeps
    the pages of prompts for requests that begin alike. `adapter_host_bytes` bounds adapters in host
    memory, None is a thirty-second of the machine's. `adapter_cache_folder` takes copies of
    remote adapters, up to `adapter_cache_bytes`. At most `pin_share` of the pool may be pinned.

    Adapters: ranks to `max_lora_rank`. `base_names` are the names by which adapters may call this
    base model (none: the one in its config.json, if any); another name is a warning, and refused
    with `strict_base`. `padded_lora_rank` is for comparisons with engines that pad adapters to
    slots: each takes the pages of one of that rank on all linear modules. The adapter registered
    as `fuse_adapter` is merged into weights of its own, on one rank and with weights that are not
    quantized. `pooled` says whether the model generates, embeds or classifies.
    """

    dtype: str = "auto"
    weight_dtype: str = "auto"
    kernels: str = "auto"
    num_threads: int | None = None
    tensor_parallel: int = 1
    max_batch_size: int = 32
    max_batched_tokens: int = 2048
    max_model_len: int | None = None
    max_loras: int | None = None
    max_waiting: int = 10_000
    max_wait_s: float = 5.0
    page_tokens: int = 16
    pool_bytes: int | None = None
    prefix_cache: bool = True
    adapter_host_bytes: int | None = None
    adapter_cache_folder: Path | None = None
    adapter_cache_bytes: int = 10 << 30
    pin_share: float = 0.25
    max_lora_rank: int = 64
    base_names: tuple[str, ...] = ()
    strict_base: bool = False
    allow_zero_effect_adapters: bool = False
    padded_lora_rank: int | None = None
    fuse_adapter: str | None = None
    pooled: PooledTask = AS_THE_FILES_SAY

    def __post_init__(self) -> None:
        """Check every range."""
        for name, allowed in (
            ("dtype", ("auto", *DTYPES)),
            ("weight_dtype", WEIGHT_DTYPES),
            ("kernels", KERNELS),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
        for name in (
            "max_batch_size",
            "max_batched_tokens",
            "max_model_len",
            "max_waiting",
            "page_tokens",
            "pool_bytes",
            "num_threads",
            "tensor_parallel",
            "max_lora_rank",
            "max_loras",
            "adapter_host_bytes",
            "adapter_cache_bytes",
            "padded_lora_rank",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        self._check_parallel()
        self._check_fused()
        if not self.max_wait_s > 0:
            raise ValueError(f"max_wait_s is {self.max_wait_s}; it must be greater than 0")
        if not 0 <= self.pin_share <= 1:
            raise ValueError(f"pin_share is {self.pin_share}; it must be between 0 and 1")

    def _check_fused(self) -> None:
        if self.fuse_adapter is None:
            return
        if not isinstance(self.fuse_adapter, str) or not self.fuse_adapter:
            raise ValueError(f"fuse_adapter is {self.fuse_adapter!r}; it must be an adapter's name")
        if self.weight_dtype == "int8":
            raise ValueError(
                f"fuse_adapter is {self.fuse_adapter} with weight_dtype int8: 8-bit weights are "
                "too coarse for an adapter's update; leave one of them out"
            )
        if self.tensor_parallel > 1:
            raise ValueError(
                f"fuse_adapter is {self.fuse_adapter} with tensor_parallel {self.tensor_parallel}; "
                "adapters are merged on one rank only: leave one of them out"
            )

    def _check_parallel(self) -> None:
        if self.tensor_parallel > 1 and (self.kernels == "native" or self.weight_dtype == "int8"):
            raise ValueError(
                f"tensor_parallel is {self.tensor_parallel} with kernels {self.kernels} and "
                f"weight_dtype {self.weight_dtype}; native kernels, which int8 weights need, "
                "cannot sum over ranks yet: use torch kernels and auto weights, or one rank"
            )


def computing_dtype(
    asked: str, stored: str, *, on_cpu: bool, has_fast_bf16: bool
) -> tuple[str, str | None]:
    """The dtype to compute in, and a warning where it is not the one asked for.

    CPUs have no fp16 arithmetic: bf16 where they have instructions for it, else fp32.
    """
    dtype = stored if asked == "auto" else asked
    if dtype != "fp16" or not on_cpu:
        return dtype, None
    chosen = "bf16" if has_fast_bf16 else "fp32"
    return chosen, f"dtype fp16 is not computed on a CPU; this engine computes in {chosen}"
