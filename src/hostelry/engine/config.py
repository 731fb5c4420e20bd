"""Settings of an engine."""

from pathlib import Path

import msgspec

from hostelry.engine.pooled import POOLING_MODES

DTYPES = ("fp32", "bf16", "fp16")
WEIGHT_DTYPES = ("auto", "int8")
KERNELS = ("auto", "native", "torch")
TASKS = ("auto", "generate", "embed", "classify")
MAX_BATCHED_TOKENS = 2048
ADAPTER_CACHE_BYTES = 10 << 30


class PooledTask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of the model, and how a model with vectors is pooled. Raises ValueError.

    `auto` and None leave the choice to the model's files (see `models.pooling_files`). A model
    with vectors queues at least `max_waiting` texts, since one request has many texts.
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


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one engine. Raises ValueError for a value out of range.

    `weight_dtype` int8 stores the weights of products as 8-bit numbers with a scale for each
    output. It needs a CPU with native kernels. `kernels` auto is native if the CPU supports them,
    else torch. Threads are bound to CPUs if `num_threads` is every CPU of this process.
    `tensor_parallel` processes hold the model together, this process included. Each has its own GPU
    or its share of the CPU's threads. On CPUs torch computes, on GPUs Triton's kernels do, without
    graphs.

    Every request of a step gets a token, even if that exceeds `max_batched_tokens`. A request that
    has waited `max_wait_s` for pages or adapters gets the next free pages.

    One pool of `pool_bytes`, over all ranks, holds the KV cache and the adapters. None is an eighth
    of the machine's memory or most of the GPUs' free memory, but at most twice the KV cache of full
    batches.

    With `strict_base` an adapter of another base model is refused. Otherwise it gives a warning.
    `base_names` are the accepted names of this base model. If empty, config.json's name is the only
    one. `padded_lora_rank` is for comparisons with engines that pad adapters to slots: each adapter
    takes the pages of an adapter of that rank on all linear modules. `fuse_adapter` names the
    adapter that is merged into a second set of weights, on one rank and without quantization.
    """

    dtype: str = "auto"  # of computing. auto is the stored dtype
    weight_dtype: str = "auto"
    kernels: str = "auto"
    num_threads: int | None = None  # None: every CPU that this process may use
    tensor_parallel: int = 1
    max_batch_size: int = 32  # requests of a step
    max_batched_tokens: int | None = None  # tokens of a step. None: MAX_BATCHED_TOKENS
    max_model_len: int | None = None  # None: the model's own
    max_loras: int | None = None  # distinct adapters of a step. None: any number
    max_waiting: int = 10_000  # queued requests. Beyond them the server is full
    max_wait_s: float = 5.0
    page_tokens: int = 16
    pool_bytes: int | None = None
    prefix_cache: bool = True  # keep the pages of prompts for requests with the same beginning
    adapter_host_bytes: int | None = None  # None: a thirty-second of the machine's memory
    adapter_cache_folder: Path | None = None  # for copies of remote adapters
    adapter_cache_bytes: int = ADAPTER_CACHE_BYTES
    pin_share: float = 0.25  # the largest share of the pool that adapters may be pinned in
    max_lora_rank: int = 64
    base_names: tuple[str, ...] = ()
    strict_base: bool = False
    allow_zero_effect_adapters: bool = False
    padded_lora_rank: int | None = None
    fuse_adapter: str | None = None
    pooled: PooledTask = AS_THE_FILES_SAY

    @property
    def step_tokens(self) -> int:
        """The most tokens of a step, before each request has at least one."""
        return self.max_batched_tokens or MAX_BATCHED_TOKENS

    def __post_init__(self) -> None:
        """Check every range. All whole numbers are at least 1."""
        for name, allowed in (
            ("dtype", ("auto", *DTYPES)),
            ("weight_dtype", WEIGHT_DTYPES),
            ("kernels", KERNELS),
        ):
            value = getattr(self, name)
            if value not in allowed:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(allowed)}")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is int and value < 1:
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
    """The dtype to compute in, and a warning if it differs from `asked`.

    CPUs have no fp16 arithmetic: it becomes bf16 on a CPU with bf16 instructions, else fp32.
    """
    dtype = stored if asked == "auto" else asked
    if dtype != "fp16" or not on_cpu:
        return dtype, None
    chosen = "bf16" if has_fast_bf16 else "fp32"
    return chosen, f"dtype fp16 is not computed on a CPU; this engine computes in {chosen}"
