"""Qwen3: Llama with a norm over each query and key head. The upper layers may slide."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hostelry.engine.models.architecture import Architecture
from hostelry.engine.models.architectures.qwen2 import read_qwen_windows
from hostelry.engine.models.dense import Defaults, read_dense_spec
from hostelry.engine.models.fields import ConfigFields
from hostelry.engine.models.spec import ModelSpec
from hostelry.engine.models.tensors import NormNames

_NAME = "Qwen3ForCausalLM"


def _read_spec(fields: ConfigFields, generation: Mapping[str, Any]) -> ModelSpec:
    defaults = Defaults(max_len=32_768, num_kv_heads=32, head_dim=128)
    spec = read_dense_spec(fields, generation, _NAME, defaults)
    fields.choice("hidden_act", ("silu",), "silu")
    has_bias = fields.flag("attention_bias", default=False)
    return replace(
        spec,
        attention_bias=has_bias,
        output_bias=has_bias,
        windows=read_qwen_windows(fields, spec.num_layers),
    )


QWEN3 = Architecture(
    name=_NAME, model_type="qwen3", read_spec=_read_spec, norms=NormNames(has_heads=True)
)
