"""Mistral: Llama without biases. Every layer may see a sliding window only."""

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

_NAME = "MistralForCausalLM"


def _read_spec(fields: ConfigFields, generation: Mapping[str, Any]) -> ModelSpec:
    spec = read_dense_spec(fields, generation, _NAME, Defaults(max_len=131_072, num_kv_heads=8))
    fields.choice("hidden_act", ("silu",), "silu")
    window = fields.positive_or_null("sliding_window", 4096)
    uniform = (FULL if window is None else SLIDING,) * spec.num_layers
    types = read_layer_types(fields, uniform)
    if types != uniform:  # transformers' Mistral does not heed them, those who wrote them did
        raise UnsupportedModelError(
            f"config.json: layer_types {quote(types)} do not go with sliding_window {window}"
        )
    return replace(spec, windows=get_layer_windows(types, window))


MISTRAL = Architecture(name=_NAME, model_type="mistral", read_spec=_read_spec, norms=NormNames())
