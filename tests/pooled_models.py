"""Small random models that compute vectors, and transformers' results for them."""

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tests import models
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import BertProcessing

FAMILIES = ("Bert", "Roberta", "XLMRoberta", "DistilBert", "MPNet")
DECODERS = ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma3")
HIDDEN = 48
_SIZES: dict[str, Any] = {
    "vocab_size": 199,
    "max_position_embeddings": 66,
    "initializer_range": 0.2,
    "pad_token_id": 1,
}
_PLAIN = {
    "hidden_size": HIDDEN,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "type_vocab_size": 2,
}
_DISTILBERT = {"dim": HIDDEN, "hidden_dim": 80, "n_layers": 2, "n_heads": 4}


def tiny_encoder(folder: Path, family: str, kind: str = "Model", **overrides: Any) -> Path:
    """Write a random encoder of transformers' class `{family}{kind}`. Returns the folder."""
    import transformers

    sizes = _DISTILBERT if family == "DistilBert" else _PLAIN
    fields = getattr(transformers, f"{family}Config")(**{**_SIZES, **sizes, **overrides})
    _write(folder, getattr(transformers, family + kind), fields)
    return folder


def tiny_pooled_decoder(folder: Path, family: str, kind: str = "Model", **overrides: Any) -> Path:
    """Write a random decoder: for `kind` Model without lm_head, for other kinds with classes."""
    import transformers

    makers = {it: getattr(models, f"tiny_{it.lower()}") for it in DECODERS}
    makers[family](folder, **overrides)
    if kind == "ForCausalLM":
        return folder
    name = "Gemma3Text" if family == "Gemma3" else family
    fields = transformers.AutoConfig.from_pretrained(folder, **overrides)
    _write(folder, getattr(transformers, name + kind), fields)
    return folder


def _write(folder: Path, kind: Any, fields: Any) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = kind(fields)
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name.lower():
                parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)


def write_modules(
    folder: Path, mode: str, *, normalize: bool = True, dense: int | None = None, **settings: Any
) -> None:
    """Write sentence-transformers' files. `dense` is the size after a dense layer with tanh."""
    kinds = ["Transformer", "Pooling", *(["Dense"] if dense else [])]
    kinds += ["Normalize"] if normalize else []
    rows = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "1_Pooling").mkdir()
    flags = {f"pooling_mode_{it}": it == mode for it in ("cls_token", "mean_tokens", "max_tokens")}
    flags[f"pooling_mode_{mode}"] = True
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(flags))
    if settings:
        (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    if dense:
        inner = int(json.loads((folder / "config.json").read_text()).get("hidden_size", HIDDEN))
        (folder / "2_Dense").mkdir()
        config = {
            "in_features": inner,
            "out_features": dense,
            "bias": True,
            "activation_function": "torch.nn.modules.activation.Tanh",
        }
        (folder / "2_Dense" / "config.json").write_text(json.dumps(config))
        torch.manual_seed(5)
        weights = {"linear.weight": torch.randn(dense, inner), "linear.bias": torch.randn(dense)}
        save_file(weights, folder / "2_Dense" / "model.safetensors")


@torch.inference_mode()
def reference_hidden(
    folder: Path, texts: Sequence[Sequence[int]], adapter: Path | None = None
) -> list[torch.Tensor]:
    """The last hidden states (L, H) of each text by itself, by transformers (and PEFT) in fp32."""
    from peft import PeftModel
    from transformers import AutoModel

    model: Any = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    if adapter is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the packages warn about each other
            model = PeftModel.from_pretrained(model, str(adapter)).eval()
    return [model(input_ids=torch.tensor([list(it)]))[0][0] for it in texts]


@torch.inference_mode()
def reference_classes(
    folder: Path, texts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
) -> list[torch.Tensor]:
    """The logits of each text by itself, by transformers in fp32."""
    from transformers import AutoModelForSequenceClassification

    kind: Any = AutoModelForSequenceClassification
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    more = [{} if not it else {"token_type_ids": torch.tensor([list(it)])} for it in types or ()]
    return [
        model(input_ids=torch.tensor([list(it)]), **each).logits[0]
        for it, each in zip(texts, more or [{}] * len(texts), strict=True)
    ]


def reference_pooled(hidden_LH: torch.Tensor, mode: str) -> torch.Tensor:
    """Pool one text as sentence-transformers does."""
    length = len(hidden_LH)
    positions = torch.arange(1, length + 1)[:, None]
    by_mode: dict[str, torch.Tensor] = {
        "cls_token": hidden_LH[0],
        "lasttoken": hidden_LH[-1],
        "max_tokens": hidden_LH.max(0).values,
        "mean_tokens": hidden_LH.sum(0) / length,
        "mean_sqrt_len_tokens": hidden_LH.sum(0) / length**0.5,
        "weightedmean_tokens": (hidden_LH * positions).sum(0) / positions.sum(),
    }
    return by_mode[mode]


WORDS = (
    "[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "sea", "is", "blue", "and", "deep", "cats", "sleep",
    "all", "day",
)  # fmt: skip


def write_word_tokenizer(folder: Path) -> Tokenizer:
    """Write tokenizer.json of a lower-case word tokenizer with BERT's special tokens and types."""
    tokenizer = Tokenizer(WordLevel({it: number for number, it in enumerate(WORDS)}, "[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer
