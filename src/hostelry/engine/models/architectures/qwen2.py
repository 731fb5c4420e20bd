"""Qwen2 and Qwen2.5: Llama with biases on q, k and v. The upper layers may slide."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.engine.models.architecture import Architecture
from hostelry.engine.models.dense import (
    FULL,
    SLIDING,
    Defaults,
    get_layer_windows,
    read_dense_spec,
    read_layer_types,
)
from hostelry.engine.models.fields import ConfigFields, quote
from hostelry.engine.models.spec import ModelSpec, UnsupportedModelError
from hostelry.engine.models.tensors import NormNames

_NAME = "Qwen2ForCausalLM"


def _read_spec(fields: ConfigFields, generation: Mapping[str, Any]) -> ModelSpec:
    spec = read_dense_spec(fields, generation, _NAME, Defaults(max_len=32_768, num_kv_heads=32))
    fields.choice("hidden_act", ("silu",), "silu")
    fields.value("attention_bias")  # has no say: q, k and v have biases always, o never
    return replace(spec, attention_bias=True, windows=read_qwen_windows(fields, spec.num_layers))


def read_qwen_windows(fields: ConfigFields, num_layers: int) -> tuple[int | None, ...]:
    """Each layer's window. Without layer_types the layers from max_window_layers on slide."""
    window = fields.positive_or_null("sliding_window", 4096)
    if not fields.flag("use_sliding_window", default=False):
        window = None
    first = fields.value("max_window_layers", 28)
    if type(first) is not int or first < 0:
        raise UnsupportedModelError(
            f"config.json: max_window_layers is {quote(first)}; it must be at least 0"
        )
    default = tuple(
        SLIDING if window is not None and index >= first else FULL for index in range(num_layers)
    )
    return get_layer_windows(read_layer_types(fields, default), window)


QWEN2 = Architecture(name=_NAME, model_type="qwen2", read_spec=_read_spec, norms=NormNames())
