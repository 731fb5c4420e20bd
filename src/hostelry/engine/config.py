"""How an engine is set up."""

from dataclasses import dataclass

DTYPES = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one engine; raises ValueError where one is out of range.

    `dtype` auto is the stored one. `max_model_len` None is the model's own. `kv_cache_bytes` None
    is an eighth of the machine's memory, or most of what a GPU has left, and never more than a full
    batch of longest requests can use. `num_threads` None leaves torch's choice. `max_loras` bounds
    the distinct adapters of one step (None: no bound); how many are loaded is not limited. A step
    has at least `max_batch_size` tokens, whatever `max_batched_tokens` says.
    """

    dtype: str = "auto"
    max_batch_size: int = 32
    max_batched_tokens: int = 2048
    max_model_len: int | None = None
    page_tokens: int = 16
    kv_cache_bytes: int | None = None
    num_threads: int | None = None
    max_lora_rank: int = 64
    max_loras: int | None = None
    allow_zero_effect_adapters: bool = False

    def __post_init__(self) -> None:
        """Check every range."""
        if self.dtype not in ("auto", *DTYPES):
            raise ValueError(f"dtype is {self.dtype!r}; it must be auto, fp32, bf16 or fp16")
        for name in (
            "max_batch_size",
            "max_batched_tokens",
            "max_model_len",
            "page_tokens",
            "kv_cache_bytes",
            "num_threads",
            "max_lora_rank",
            "max_loras",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")


def computing_dtype(
    asked: str, stored: str, *, on_cpu: bool, has_fast_bf16: bool
) -> tuple[str, str | None]:
    """The dtype to compute in, and a warning where it is not the one asked for.

    A CPU has no fp16 arithmetic: bf16 where its instructions know it, else fp32.
    """
    wanted = stored if asked == "auto" else asked
    if wanted != "fp16" or not on_cpu:
        return wanted, None
    chosen = "bf16" if has_fast_bf16 else "fp32"
    return chosen, f"dtype fp16 is not computed on a CPU; this engine computes in {chosen}"
