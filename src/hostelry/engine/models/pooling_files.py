"""Reading of a model folder's pooling: sentence-transformers' files and config.json.

    task                 the folder                                        the model
    -------------------  ------------------------------------------------  ------------------------
    auto                 ...ForSequenceClassification                      classifies
    auto                 an encoder, ...Model, or modules.json             embeds
    auto                 any other                                         generates
    generate             a decoder without a head                          generates
    embed                without a classification head                     embeds
    classify             with one                                          classifies
    any other combination                                                  UnsupportedModelError

Without sentence-transformers' files an encoder's vector is its first token's and a decoder's vector
is its last token's, divided by its length, as in vLLM.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from hostelry.engine.config import PooledTask
from hostelry.engine.models.encoder_spec import CLASSIFIER, EncoderFamily, find_encoder_family
from hostelry.engine.models.fields import ConfigFields, quote
from hostelry.engine.models.spec import UnsupportedModelError
from hostelry.engine.pooled import POOLING_MODES, ClassActivation, PoolingFacts

_MODULES = "modules.json"
_MAX_LABELS = 100_000
_MAX_PROMPTS = 1000
_OWN_FIELDS = (
    "sentence_transformers", "sbert_ce_default_activation_function", "matryoshka_dimensions",
    "is_matryoshka", "num_labels", "score_template",
)  # fmt: skip
_ACTIVATIONS: Mapping[str, ClassActivation] = {
    "Identity": "identity",
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
}


class DenseFiles(msgspec.Struct, frozen=True, kw_only=True):
    """A dense layer after pooling: its folder, sizes and activation."""

    folder: Path
    in_features: int
    out_features: int
    has_bias: bool
    activation: Literal["identity", "tanh"]


class PoolingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How vectors are pooled: by `modes` side by side, then by the `dense` layers.

    `family` None: a decoder. `max_len` None: the model's own length.
    """

    facts: PoolingFacts
    modes: tuple[str, ...]
    dense: tuple[DenseFiles, ...] = ()
    family: EncoderFamily | None = None
    name: str = ""
    max_len: int | None = None


def read_pooling(folder: Path, config: Mapping[str, Any], asked: PooledTask) -> PoolingSpec | None:
    """How the model in `folder` is pooled.

    None if it generates. Raises UnsupportedModelError for a task that the model cannot do, and for
    files with unsupported settings.
    """
    name = get_architecture_name(config)
    kind = _find_kind(name, (folder / _MODULES).is_file(), asked.task)
    if kind is None:
        return None
    family = find_encoder_family(name)
    if kind == "classify":
        facts = _read_classes(config)
        mode = "cls" if family else "lasttoken"
        return PoolingSpec(facts=facts, modes=(mode,), family=family, name=name)
    return _read_embedding(folder, config, asked, family, name)


def get_architecture_name(config: Mapping[str, Any]) -> str:
    """The first of a config.json's `architectures`, else its model type. "" without either."""
    names = config.get("architectures") or [config.get("model_type")]
    name = names[0] if isinstance(names, list) and names else names
    return name if isinstance(name, str) else ""


def to_decoder_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A pooled decoder's config.json as the generating architecture's, without pooling fields."""
    name = get_architecture_name(config)
    for ending in (CLASSIFIER, "Model"):
        name = name.removesuffix(ending)
    causal = name if name.endswith("ForCausalLM") else f"{name}ForCausalLM"
    family = config.get("model_type") or causal
    rest = {key: value for key, value in config.items() if key not in _OWN_FIELDS}
    return {**rest, "architectures": [family]}


def _find_kind(name: str, has_modules: bool, task: str) -> str | None:
    """See the table above."""
    has_head = name.endswith(CLASSIFIER)
    is_encoder = find_encoder_family(name) is not None
    if task == "auto":
        if has_head:
            return "classify"
        return "embed" if is_encoder or has_modules or name.endswith("Model") else None
    if task == "classify":
        if not has_head:
            raise UnsupportedModelError(
                f"task classify needs a ...{CLASSIFIER} architecture; {quote(name)} has no head"
            )
        return task
    if has_head:
        raise UnsupportedModelError(
            f"task {task} and the architecture {name} do not go together; its task is classify"
        )
    if task == "generate" and is_encoder:
        raise UnsupportedModelError(f"{name} is an encoder and cannot generate; its task is embed")
    return None if task == "generate" else "embed"


def _read_embedding(
    folder: Path,
    config: Mapping[str, Any],
    asked: PooledTask,
    family: EncoderFamily | None,
    name: str,
) -> PoolingSpec:
    modules = _read_modules(folder)
    modes: tuple[str, ...] = ("cls",) if family else ("lasttoken",)
    dense: list[DenseFiles] = []
    normalize = not modules
    for kind, part in modules[1:]:
        if kind == "Pooling":
            modes = _read_modes(_read_object(part / "config.json"))
        elif kind == "Dense":
            dense.append(_read_dense(part))
        elif kind == "Normalize":
            normalize = True
        else:
            raise UnsupportedModelError(
                f"{_MODULES}: module {quote(kind)} is not supported; Transformer, Pooling, Dense "
                "and Normalize are"
            )
    if asked.pooling is not None:
        modes = (asked.pooling,)
    fields = ConfigFields(config)
    size = fields.positive(family.hidden_size if family else "hidden_size") * len(modes)
    for layer in dense:
        if layer.in_features != size:
            raise UnsupportedModelError(
                f"{layer.folder.name}: in_features is {layer.in_features}; the module before it "
                f"gives {size}"
            )
        size = layer.out_features
    sizes = config.get("matryoshka_dimensions") or ()
    prompts, default = _read_prompts(folder)
    transformer = _read_transformer_settings(folder)
    facts = PoolingFacts(
        kind="embed",
        dimension=size,
        normalize=normalize if asked.normalize is None else asked.normalize,
        dimensions=tuple(it for it in sizes if type(it) is int and 0 < it <= size),
        any_dimensions=config.get("is_matryoshka") is True,
        lower_case=transformer.get("do_lower_case") is True,
        prompts=prompts,
        default_prompt=default,
    )
    longest = transformer.get("max_seq_length")
    if longest is not None and (type(longest) is not int or longest < 1):
        raise UnsupportedModelError(
            f"max_seq_length is {quote(longest)}; it must be a positive integer"
        )
    return PoolingSpec(
        facts=facts,
        modes=modes,
        dense=tuple(dense),
        family=family,
        name=name,
        max_len=longest,
    )


def _read_modules(folder: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module of modules.json. Empty without the file."""
    path = folder / _MODULES
    if not path.is_file():
        return []
    rows = _read_json(path)
    if not isinstance(rows, list) or not rows:
        raise UnsupportedModelError(f"{_MODULES} is no list of modules")
    found = []
    for row in rows:
        kind, place = (row.get("type"), row.get("path")) if isinstance(row, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(place, str):
            raise UnsupportedModelError(f"{_MODULES}: {quote(row)} has no type and path")
        if place and (Path(place).name != place or place == ".."):
            raise UnsupportedModelError(f"{_MODULES}: path {quote(place)} leaves the model folder")
        found.append((kind.rsplit(".", 1)[-1], folder / place))
    if found[0] != ("Transformer", folder):
        raise UnsupportedModelError(
            f"{_MODULES}: the first module must be a Transformer in the model folder itself"
        )
    return found


def _read_modes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The pooling modes of a Pooling module, in the order in which it joins them."""
    if config.get("include_prompt") is False:
        raise UnsupportedModelError("1_Pooling: include_prompt is false, which is not supported")
    named = config.get("pooling_mode")
    if named is not None:
        modes = tuple([named] if isinstance(named, str) else named)
    else:
        spelled = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens"}
        spelled["mean_sqrt_len"] = "mean_sqrt_len_tokens"
        spelled["weightedmean"] = "weightedmean_tokens"
        flags = {it: config.get(f"pooling_mode_{spelled.get(it, it)}") for it in POOLING_MODES}
        modes = tuple(it for it, value in flags.items() if value is True)
    if not modes or any(it not in POOLING_MODES for it in modes):
        raise UnsupportedModelError(
            f"1_Pooling: the pooling modes {quote(modes)} are not supported; "
            f"{', '.join(POOLING_MODES)} are"
        )
    return modes


def _read_dense(folder: Path) -> DenseFiles:
    config = _read_object(folder / "config.json")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    kinds: Mapping[str, Literal["identity", "tanh"]] = {"Identity": "identity", "Tanh": "tanh"}
    kind = kinds.get(activation.rsplit(".", 1)[-1])
    sizes = (config.get("in_features"), config.get("out_features"))
    if kind is None or not all(type(it) is int and 0 < it <= 1 << 20 for it in sizes):
        raise UnsupportedModelError(
            f"{folder.name}: in_features {quote(sizes[0])}, out_features {quote(sizes[1])} and "
            f"activation_function {quote(activation)} are not supported"
        )
    return DenseFiles(
        folder=folder,
        in_features=int(sizes[0] or 0),
        out_features=int(sizes[1] or 0),
        has_bias=config.get("bias", True) is True,
        activation=kind,
    )


def _read_transformer_settings(folder: Path) -> Mapping[str, Any]:
    """The settings of the Transformer module, under any of its file's names."""
    for path in sorted(folder.glob("sentence_*_config.json")):
        return _read_object(path)
    return {}


def _read_prompts(folder: Path) -> tuple[dict[str, str], str | None]:
    path = folder / "config_sentence_transformers.json"
    config = _read_object(path) if path.is_file() else {}
    prompts = config.get("prompts") or {}
    default = config.get("default_prompt_name")
    if not isinstance(prompts, dict) or len(prompts) > _MAX_PROMPTS:
        raise UnsupportedModelError(f"{path.name}: prompts is no object of texts")
    texts = {str(key): text for key, text in prompts.items() if isinstance(text, str)}
    if default is not None and default not in texts:
        raise UnsupportedModelError(
            f"{path.name}: default_prompt_name {quote(default)} is none of its prompts"
        )
    return texts, default


def _read_classes(config: Mapping[str, Any]) -> PoolingFacts:
    names = config.get("id2label")
    count = len(names) if isinstance(names, dict) and names else config.get("num_labels", 2)
    if type(count) is not int or not 0 < count <= _MAX_LABELS:
        raise UnsupportedModelError(
            f"config.json: num_labels is {quote(count)}; it must be 1 to {_MAX_LABELS}"
        )
    given = names if isinstance(names, dict) else {}
    labels = tuple(str(given.get(str(number), f"LABEL_{number}")) for number in range(count))
    return PoolingFacts(
        kind="classify", dimension=count, labels=labels, activation=_read_activation(config, count)
    )


def _read_activation(config: Mapping[str, Any], num_labels: int) -> ClassActivation:
    """The activation that config.json names, else the default of its problem_type.

    Source: sentence-transformers' CrossEncoder and transformers' text classification.
    """
    newer = config.get("sentence_transformers")
    named = newer.get("activation_fn") if isinstance(newer, dict) else None
    named = named or config.get("sbert_ce_default_activation_function")
    if named is not None:
        kind = _ACTIVATIONS.get(str(named).rsplit(".", 1)[-1])
        if kind is None:
            raise UnsupportedModelError(
                f"config.json: the activation {quote(named)} is not supported; "
                f"{', '.join(_ACTIVATIONS)} are"
            )
        return kind
    problem = config.get("problem_type")
    if problem == "regression":
        return "identity"
    if problem == "multi_label_classification" or num_labels == 1:
        return "sigmoid"
    return "softmax"


def _read_object(path: Path) -> Mapping[str, Any]:
    value = _read_json(path)
    if not isinstance(value, dict):
        raise UnsupportedModelError(f"{path.parent.name}/{path.name} is no JSON object")
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UnsupportedModelError(
            f"{path.parent.name}/{path.name} is no JSON: {error}"
        ) from error
