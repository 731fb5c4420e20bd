"""Registry of the supported architectures, and loading of a Hugging Face folder by one of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hostelry.engine.kernels.weights import DecoderWeights, RopeTables
from hostelry.engine.layers.rotary import inverse_frequencies, rope_tables
from hostelry.engine.models.architecture import Architecture
from hostelry.engine.models.architectures.gemma3 import GEMMA3
from hostelry.engine.models.architectures.llama import LLAMA
from hostelry.engine.models.architectures.mistral import MISTRAL
from hostelry.engine.models.architectures.qwen2 import QWEN2
from hostelry.engine.models.architectures.qwen3 import QWEN3
from hostelry.engine.models.checkpoint import TensorFiles
from hostelry.engine.models.fields import ConfigFields, shown
from hostelry.engine.models.spec import ModelSpec, UnsupportedModelError
from hostelry.engine.models.tensors import (
    EMBEDDING,
    LM_HEAD,
    DecoderTensors,
    expected_shapes,
    redundant_names,
)

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture for architecture in (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3)
}


def load_spec(folder: Path) -> ModelSpec:
    """The spec of the model in `folder`. Raises UnsupportedModelError naming what cannot be run."""
    path = folder / "config.json"
    if not path.is_file():
        raise UnsupportedModelError(
            f"{folder} holds no config.json; give a Hugging Face model folder"
        )
    generation = folder / "generation_config.json"
    return parse_spec(_read_json(path), _read_json(generation) if generation.is_file() else {})


def parse_spec(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelSpec:
    """The spec in a parsed config.json and generation_config.json ({} where there is none).

    Raises UnsupportedModelError for an architecture that is not in ARCHITECTURES, for a value that
    is not supported, and for a field that is set and may change the result.
    """
    fields = ConfigFields(config)
    spec = _architecture(config).read_spec(fields, generation)
    fields.finish()
    return spec


def load_decoder(
    folder: Path, spec: ModelSpec, *, max_len: int, dtype: torch.dtype, device: torch.device
) -> DecoderWeights:
    """The weights of the model in `folder`, in `dtype` on `device`, for up to `max_len` positions.

    Linear weights and the embedding are of `dtype`; norms, biases and rope tables of fp32. Layers
    are read one by one as `layer(i)` is called; every tensor's name, shape and type is checked
    here. Raises UnsupportedModelError for a missing, unexpected or wrongly shaped tensor.
    """
    norms = ARCHITECTURES[spec.architecture].norms
    files = TensorFiles(folder)
    files.expect(expected_shapes(spec, norms))
    files.ignore(redundant_names(spec))
    files.finish()
    tensors = DecoderTensors(files, spec, norms, dtype, device)
    embedding_VH = tensors.table(EMBEDDING)
    return DecoderWeights(
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        norm_eps=spec.rms_norm_eps,
        attention_scale=spec.attention_scale,
        activation=spec.activation,
        embedding_scale=torch.tensor(spec.embedding_scale, dtype=dtype).item(),
        embedding_VH=embedding_VH,
        lm_head_VH=embedding_VH if spec.tie_embeddings else tensors.table(LM_HEAD),
        final_norm_H=tensors.final_norm(),
        ropes=_ropes(spec, max_len, device),
        layer=tensors.layer,
        dtype=dtype,
    )


def _ropes(spec: ModelSpec, max_len: int, device: torch.device) -> tuple[RopeTables, ...]:
    return tuple(
        rope_tables(
            inverse_frequencies(
                spec.head_dim,
                rope.theta,
                kind=rope.kind,
                factor=rope.factor,
                low_freq_factor=rope.low_freq_factor,
                high_freq_factor=rope.high_freq_factor,
                original_max_len=rope.original_max_len,
            ),
            max_len,
            device,
        )
        for rope in spec.ropes
    )


def _architecture(config: Mapping[str, Any]) -> Architecture:
    """By the first name of `architectures`, else by `model_type`."""
    names = config.get("architectures") or [config.get("model_type")]
    name = names[0] if isinstance(names, list) else names
    for architecture in ARCHITECTURES.values():
        if name in (architecture.name, architecture.model_type):
            return architecture
    raise UnsupportedModelError(
        f"architecture {shown(name)} is not supported; supported: {', '.join(ARCHITECTURES)}"
    )


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(f"{path.name} is no JSON object")
    return value
