"""On a CUDA device: vectors of encoders and decoders, against transformers in fp32 on a CPU."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tests.pooled_models import (
    DECODERS,
    FAMILIES,
    reference_classes,
    reference_hidden,
    reference_pooled,
    tiny_encoder,
    tiny_pooled_decoder,
    write_modules,
)
from tests.unit.engine.test_pooled import TEXTS, embedded, short

from hostelry.engine.engine import EngineConfig

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 6e-2}


def assert_near(
    found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], dtype: str
) -> None:
    """Within the dtype's share of the largest number."""
    for got, want in zip(found, expected, strict=True):
        bound = TOLERANCE[dtype] * float(want.abs().max())
        torch.testing.assert_close(got, want, atol=bound, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoders_mean_is_that_of_a_cpu(tmp_path: Path, family: str, dtype: str) -> None:
    folder = tiny_encoder(tmp_path, family)
    write_modules(folder, "mean_tokens", normalize=False)
    texts = TEXTS if family in ("Bert", "DistilBert") else short(TEXTS, 64)
    expected = [reference_pooled(it, "mean_tokens") for it in reference_hidden(folder, texts)]
    assert_near(embedded(folder, texts, EngineConfig(dtype=dtype)), expected, dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_encoders_classes_are_those_of_a_cpu(tmp_path: Path, family: str, dtype: str) -> None:
    folder = tiny_encoder(tmp_path, family, "ForSequenceClassification", num_labels=3)
    found = embedded(folder, TEXTS, EngineConfig(dtype=dtype))
    assert_near(found, reference_classes(folder, TEXTS), dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mode", ["lasttoken", "mean_tokens"])
@pytest.mark.parametrize("family", DECODERS)
def test_pooled_decoders_are_those_of_a_cpu(
    tmp_path: Path, family: str, mode: str, dtype: str
) -> None:
    folder = tiny_pooled_decoder(tmp_path, family)
    write_modules(folder, mode, normalize=False)
    expected = [reference_pooled(it, mode) for it in reference_hidden(folder, TEXTS)]
    found = embedded(folder, TEXTS, EngineConfig(dtype=dtype, max_batched_tokens=64))
    assert_near(found, expected, dtype)
