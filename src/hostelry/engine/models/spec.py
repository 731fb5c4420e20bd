"""A model's shape, whatever its architecture."""

from typing import Protocol

import msgspec
import torch

from hostelry.engine.kernels.weights import Activation


class UnsupportedModelError(ValueError):
    """The engine cannot run the model in the folder. Names the field or tensor and its value."""


class ServedSpec(Protocol):
    """The facts that requests are checked against, of decoders and encoders."""

    @property
    def vocab_size(self) -> int: ...  # noqa: D102
    @property
    def max_model_len(self) -> int: ...  # noqa: D102
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def dtype(self) -> str: ...  # noqa: D102


class RopeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Rotary embedding. `kind` is default, linear or llama3. The rest is as in config.json."""

    theta: float
    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_len: int = 8192


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A model's shape and constants.

    Lengths are in tokens, `dtype` is of the stored weights. Layer i sees the last `windows[i]`
    tokens, itself included (None: all), and turns by `ropes[layer_ropes[i]]`. `attention_bias` is
    of q, k and v, `output_bias` of o, `mlp_bias` of gate, up and down. Scores are multiplied by
    `attention_scale`, embeddings by `embedding_scale` (rounded to the computing dtype).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    ropes: tuple[RopeSpec, ...]
    layer_ropes: tuple[int, ...]
    windows: tuple[int | None, ...]
    activation: Activation
    attention_scale: float
    embedding_scale: float
    tie_embeddings: bool
    attention_bias: bool
    output_bias: bool
    mlp_bias: bool
    max_model_len: int
    eos_token_ids: tuple[int, ...]
    dtype: str


DTYPE_NAMES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}
TORCH_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
