"""Registry of the supported architectures, and loading of a Hugging Face folder by one of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

from hostelry.engine.kernels.weights import DecoderWeights, RopeTables
from hostelry.engine.layers.rotary import build_rope_tables, compute_inverse_frequencies
from hostelry.engine.models.architecture import Architecture
from hostelry.engine.models.architectures.gemma3 import GEMMA3
from hostelry.engine.models.architectures.llama import LLAMA
from hostelry.engine.models.architectures.mistral import MISTRAL
from hostelry.engine.models.architectures.qwen2 import QWEN2
from hostelry.engine.models.architectures.qwen3 import QWEN3
from hostelry.engine.models.checkpoint import TensorFiles
from hostelry.engine.models.fields import ConfigFields, quote
from hostelry.engine.models.spec import ModelSpec, UnsupportedModelError
from hostelry.engine.models.tensors import (
    EMBEDDING,
    LM_HEAD,
    SCORE,
    DecoderTensors,
    list_expected_shapes,
    list_redundant_names,
)
from hostelry.engine.pooled import PoolingFacts

ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture for architecture in (LLAMA, MISTRAL, QWEN2, QWEN3, GEMMA3)
}


def load_spec(folder: Path) -> ModelSpec:
    """The spec of the model in `folder`.

    Raises UnsupportedModelError naming the unsupported part.
    """
    generation = folder / "generation_config.json"
    given = _read_json(generation) if generation.is_file() else {}
    return parse_spec(read_config(folder), given)


def read_config(folder: Path) -> Mapping[str, Any]:
    """The parsed config.json of the model in `folder`. Raises UnsupportedModelError."""
    path = folder / "config.json"
    if not path.is_file():
        raise UnsupportedModelError(
            f"{folder} holds no config.json; give a Hugging Face model folder"
        )
    return _read_json(path)


def parse_spec(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelSpec:
    """The spec in a parsed config.json and generation_config.json ({} without the file).

    Raises UnsupportedModelError for an architecture that is not in ARCHITECTURES, for a value that
    is not supported, and for a field that is set and may change the result.
    """
    fields = ConfigFields(config)
    spec = _find_architecture(config).read_spec(fields, generation)
    fields.finish()
    return spec


def load_decoder(
    folder: Path,
    spec: ModelSpec,
    *,
    max_len: int,
    dtype: torch.dtype,
    device: torch.device,
    pooling: PoolingFacts | None = None,
) -> DecoderWeights:
    """The weights of the model in `folder`, in `dtype` on `device`, for up to `max_len` positions.

    Linear weights and the embedding are of `dtype`, and norms, biases and rope tables of fp32.
    Layers are read one by one as `layer(i)` is called. Every tensor's name, shape and type is
    checked here. With `pooling` the lm_head is a classification head or, for embeddings, the
    identity. Raises UnsupportedModelError for a missing, unexpected or wrongly shaped tensor.
    """
    norms = ARCHITECTURES[spec.architecture].norms
    if pooling is not None:
        spec = replace(spec, tie_embeddings=True)
    files = TensorFiles(folder, renamed=_keep_name if pooling is None else add_model_prefix)
    files.expect(list_expected_shapes(spec, norms))
    files.ignore(list_redundant_names(spec))
    if pooling is not None and pooling.kind == "classify":
        files.expect([(SCORE, (pooling.dimension, spec.hidden_size))])
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
        lm_head_VH=_read_head(tensors, spec, embedding_VH, pooling),
        final_norm_H=tensors.final_norm(),
        ropes=_build_ropes(spec, max_len, device),
        layer=tensors.layer,
        dtype=dtype,
    )


def add_model_prefix(name: str) -> str:
    """A tensor's name in the generating model, of one that may be stored without its head."""
    is_whole = name.startswith(("model.", "lm_head.", "score."))
    return name if is_whole else f"model.{name}"


def _keep_name(name: str) -> str:
    return name


def _read_head(
    tensors: DecoderTensors,
    spec: ModelSpec,
    embedding_VH: torch.Tensor,
    pooling: PoolingFacts | None,
) -> torch.Tensor:
    """The rows of the last product: a row for each token, class or hidden dimension."""
    if pooling is not None:
        if pooling.kind == "classify":
            return tensors.table(SCORE)
        return torch.eye(spec.hidden_size, dtype=embedding_VH.dtype, device=embedding_VH.device)
    return embedding_VH if spec.tie_embeddings else tensors.table(LM_HEAD)


def _build_ropes(spec: ModelSpec, max_len: int, device: torch.device) -> tuple[RopeTables, ...]:
    return tuple(
        build_rope_tables(
            compute_inverse_frequencies(
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


def _find_architecture(config: Mapping[str, Any]) -> Architecture:
    """By the first name of `architectures`, else by `model_type`."""
    names = config.get("architectures") or [config.get("model_type")]
    name = names[0] if isinstance(names, list) else names
    for architecture in ARCHITECTURES.values():
        if name in (architecture.name, architecture.model_type):
            return architecture
    raise UnsupportedModelError(
        f"architecture {quote(name)} is not supported; supported: {', '.join(ARCHITECTURES)}"
    )


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UnsupportedModelError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnsupportedModelError(f"{path.name} is no JSON object")
    return value
