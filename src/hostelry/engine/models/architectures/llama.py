"""Llama and what computes like it: SmolLM2, TinyLlama and others."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.engine.models.architecture import Architecture
from hostelry.engine.models.dense import (
    FULL,
    Defaults,
    get_layer_windows,
    read_dense_spec,
    read_layer_types,
)
from hostelry.engine.models.fields import ConfigFields
from hostelry.engine.models.spec import ModelSpec
from hostelry.engine.models.tensors import NormNames

_NAME = "LlamaForCausalLM"


def _read_spec(fields: ConfigFields, generation: Mapping[str, Any]) -> ModelSpec:
    spec = read_dense_spec(fields, generation, _NAME, Defaults(max_len=2048))
    fields.choice("hidden_act", ("silu",), "silu")
    has_attention_bias = fields.flag("attention_bias", default=False)
    types = read_layer_types(fields, (FULL,) * spec.num_layers)
    return replace(
        spec,
        attention_bias=has_attention_bias,
        output_bias=has_attention_bias,
        mlp_bias=fields.flag("mlp_bias", default=False),
        windows=get_layer_windows(types, None),
    )


LLAMA = Architecture(name=_NAME, model_type="llama", read_spec=_read_spec, norms=NormNames())
