"""Checkpoints of quantized weights over vLLM: they answer as the weights they stand for."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.integration import lmi_rig
from tests.integration.lmi_rig import serving, start
from tests.models import tiny_llama
from tests.unit.containers.lmi.tiny import write_tokenizer

from hostelry.base.runtimes import VARIABLE, find_installed, runtimes_folder

FOLDER = runtimes_folder(os.environ)
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        find_installed(FOLDER, "vllm") is None,
        reason=f"vLLM is not installed in {FOLDER}: hostelry runtimes install vllm",
    ),
]
GROUP = 64
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Tensors = dict[str, torch.Tensor]


def packed(values: torch.Tensor, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Eight numbers of four bits along the last dimension in one of 32."""
    parts = values.to(torch.int64).reshape(len(values), -1, 8)
    whole = sum(parts[..., index] << (4 * place) for place, index in enumerate(order))
    return torch.as_tensor(whole).to(torch.uint32).view(torch.int32).contiguous()


def by_groups(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights [out, in] as numbers 0 to 15 around 8, and the scale of each group [out, groups]."""
    groups = weight.reshape(len(weight), -1, GROUP)
    scales = (groups.abs().amax(-1) / 7).half()
    numbers = (groups / scales.float()[..., None]).round().clamp(-8, 7) + 8
    return numbers.flatten(1), scales


def restored(numbers: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    groups = (numbers - 8).reshape(len(numbers), -1, GROUP) * scales.float()[..., None]
    return groups.flatten(1)


def gptq(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    numbers, scales = by_groups(weight)
    zeros = torch.full_like(scales, 7)  # the format keeps them less one
    tensors = {
        "qweight": packed(numbers).t().contiguous(),
        "qzeros": packed(zeros.t().contiguous()),
        "scales": scales.t().contiguous(),
        "g_idx": (torch.arange(weight.shape[1]) // GROUP).int(),
    }
    return {f"{name}.{key}": it for key, it in tensors.items()}, restored(numbers, scales)


def awq(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    numbers, scales = by_groups(weight)
    tensors = {
        "qweight": packed(numbers.t(), AWQ_ORDER),
        "qzeros": packed(torch.full_like(scales, 8).t(), AWQ_ORDER),
        "scales": scales.t().contiguous(),
    }
    return {f"{name}.{key}": it for key, it in tensors.items()}, restored(numbers, scales)


def fp8(name: str, weight: torch.Tensor) -> tuple[Tensors, torch.Tensor]:
    scale = (weight.abs().max() / 448).float()
    small = (weight / scale).to(torch.float8_e4m3fn)
    tensors = {f"{name}.weight": small, f"{name}.weight_scale": scale}
    return tensors, small.float() * scale


FORMS = {
    "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False,
                    "sym": True}),
    "awq": (awq, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True,
                  "version": "gemm"}),
    "fp8": (fp8, {"quant_method": "fp8", "activation_scheme": "dynamic"}),
}  # fmt: skip


def write(folder: Path, form: str) -> tuple[Path, Path]:
    """A model in the form, and the model of the weights that it stands for."""
    convert: Callable[[str, torch.Tensor], tuple[Tensors, torch.Tensor]]
    convert, members = FORMS[form]
    plain = tiny_llama(
        folder / "plain", vocab_size=259, hidden_size=128, intermediate_size=256,
        num_attention_heads=4, num_key_value_heads=4, head_dim=32, tie_word_embeddings=False,
    )  # fmt: skip
    write_tokenizer(plain)
    small = folder / form
    small.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (small / name).write_bytes((plain / name).read_bytes())
    config = json.loads((plain / "config.json").read_text())
    config |= {"quantization_config": members, "dtype": "float16"}
    (small / "config.json").write_text(json.dumps(config))
    weights = load_file(plain / "model.safetensors")
    stored: Tensors = {}
    for name, weight in list(weights.items()):
        if "_proj" not in name:
            stored[name] = weight.half()
            weights[name] = weight.half().float()
            continue
        tensors, weights[name] = convert(name.removesuffix(".weight"), weight)
        stored |= tensors
    save_file(stored, small / "model.safetensors", metadata={"format": "pt"})
    save_file(weights, plain / "model.safetensors", metadata={"format": "pt"})
    return small, plain


DEVICE = getattr(find_installed(FOLDER, "vllm"), "device", "cpu")
READ = [it for it in FORMS if it != "fp8" or DEVICE == "cuda"]


@pytest.mark.parametrize("form", READ)
def test_answers_are_those_of_the_weights(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, plain = write(tmp_path, form)
    monkeypatch.setattr(lmi_rig, "START_S", 300.0)
    options = {"OPTION_POOL_BYTES": str(64 << 20), VARIABLE: str(FOLDER), "OPTION_DTYPE": "auto"}
    body = {"prompt": "hello", "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 2}
    scores = []
    for folder, more in ((small, options), (plain, {"OPTION_POOL_BYTES": str(64 << 20)})):
        with serving(folder, tmp_path / "log", **more) as server, server.client() as client:
            answer = client.post("/v1/completions", json={"model": "lmi", **body})
            assert answer.status_code == 200, answer.text
            scores.append(answer.json()["choices"][0]["logprobs"]["token_logprobs"][1:6])
    assert scores[0] == pytest.approx(scores[1], abs=0.1)


@pytest.mark.skipif("fp8" in READ, reason="this build of vLLM has kernels for FP8")
def test_a_format_without_a_kernel_fails_the_start_with_its_cause(tmp_path: Path) -> None:
    small, _ = write(tmp_path, "fp8")
    options = {VARIABLE: str(FOLDER), "OPTION_DTYPE": "auto"}
    process, _ = start(small, tmp_path / "log", **options)
    assert process.wait(300) != 0
    last = (tmp_path / "log").read_text().splitlines()[-1]
    assert "static_scaled_fp8_quant" in last
    assert "quantization_config" in last, "why our own engine does not read it is there, too"
