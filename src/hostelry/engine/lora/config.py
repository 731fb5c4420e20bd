"""adapter_config.json: what PEFT would make of it, or why it is refused.

Source: the fields and matching rules of PEFT's LoraConfig, as of version 0.21.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.folder import regular_file
from hostelry.engine.lora.patterns import check_pattern

# Fields that say nothing about the result at inference.
_NEUTRAL = frozenset(
    (
        "auto_mapping",
        "base_model_name_or_path",
        "corda_config",
        "eva_config",
        "inference_mode",
        "loftq_config",
        "lora_dropout",
        "lora_ga_config",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
    )
)

# Fields read below.
_APPLIED = frozenset(
    (
        "alpha_pattern",
        "bias",
        "ensure_weight_tying",
        "exclude_modules",
        "init_lora_weights",
        "layers_pattern",
        "layers_to_transform",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "target_modules",
        "task_type",
        "use_rslora",
    )
)

# Fields of PEFT that change the result in ways not implemented here. A field in no list, from a
# later PEFT perhaps, is treated alike: refused as soon as it is set to anything.
_REFUSED = frozenset(
    (
        "alora_invocation_tokens",
        "arrow_config",
        "fan_in_fan_out",
        "kasa_config",
        "layer_replication",
        "lora_bias",
        "megatron_config",
        "modules_to_save",
        "monteclora_config",
        "target_parameters",
        "trainable_token_indices",
        "use_bdlora",
        "use_dora",
        "use_qalora",
        "velora_config",
    )
)

# Ways to start training that leave the base weights alone; the others (pissa, olora, corda, loftq,
# lora_ga) train against a changed base, so that the adapter is wrong on the plain one.
_PLAIN_INITS = ("gaussian", "eva", "mica", "orthogonal")

_VOCABULARY = ("embed_tokens", "lm_head")

_MAX_CONFIG_BYTES = 1 << 20
_MAX_NAMES = 10_000  # in one list; whole paths of every module of the largest models
_MAX_PATTERNS = 2000  # in one table; more than the modules of the largest models


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterConfig:
    """The fields of a LoRA adapter that decide its result.

    `base_name` and `base_revision` say what it was trained on; they decide nothing.
    """

    rank: int
    alpha: float
    use_rslora: bool
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]
    target_modules: str | Sequence[str]
    exclude_modules: str | Sequence[str]
    layers_to_transform: Sequence[int]
    layers_pattern: Sequence[str]
    ensure_weight_tying: bool = False
    base_name: str | None = None
    base_revision: str | None = None

    @property
    def targets_all_linear(self) -> bool:
        """Whether target_modules is PEFT's short form for every linear module of the layers."""
        names = self.target_modules
        return isinstance(names, str) and names.lower() == "all-linear"

    def targets(self, path: str) -> bool:
        """Whether the adapter changes the module at `path`; all-linear means those of layers."""
        if self.excludes(path):
            return False
        if self.targets_all_linear:
            return True
        if isinstance(self.target_modules, str):
            return re.fullmatch(self.target_modules, path) is not None
        if path in self.target_modules:  # named in full, whatever layers_to_transform says
            return True
        return _is_named(path, self.target_modules) and self._targets_layer(path)

    def excludes(self, path: str) -> bool:
        """Whether exclude_modules names the module at `path`."""
        return _is_named(path, self.exclude_modules)

    @property
    def names_vocabulary(self) -> bool:
        """Whether target_modules names the embedding or lm_head, as PEFT asks before it ties."""
        names = self.target_modules
        if isinstance(names, str):
            return any(re.fullmatch(names, module) for module in _VOCABULARY)
        return any(name.split(".")[-1] in _VOCABULARY for name in names)

    def rank_of(self, path: str) -> int:
        """The module's rank: the first matching key of rank_pattern, else `r`."""
        return self.rank_pattern.get(_first_match(self.rank_pattern, path), self.rank)

    def scale_of(self, path: str) -> float:
        """What B A x is multiplied by: alpha / r, with rsLoRA alpha / sqrt(r), r the module's."""
        alpha = self.alpha_pattern.get(_first_match(self.alpha_pattern, path), self.alpha)
        rank = self.rank_of(path)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    def _targets_layer(self, path: str) -> bool:
        if not self.layers_to_transform:
            return True
        patterns = [rf"(?:^|.*?\.){pattern}" for pattern in self.layers_pattern]
        for pattern in patterns or [r".*?\.[^.]*"]:
            match = re.match(rf"{pattern}\.(?P<layer>\d+)\.", path)
            if match:
                return int(match["layer"]) in self.layers_to_transform
        return False


def load_config(folder: Path) -> AdapterConfig:
    """The configuration of the adapter in `folder`. Raises AdapterError naming what is wrong."""
    path = regular_file(folder, "adapter_config.json", max_bytes=_MAX_CONFIG_BYTES)
    if path is None:
        raise AdapterError("there is no adapter_config.json; PEFT's files lie at the top")
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise AdapterError(f"adapter_config.json cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"adapter_config.json is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise AdapterError("adapter_config.json is no JSON object")
    return parse_config(fields)


def parse_config(fields: Mapping[str, Any]) -> AdapterConfig:
    """The configuration in a parsed adapter_config.json. Raises AdapterError."""
    _refuse_unsupported(fields)
    config = AdapterConfig(
        rank=_integer("r", fields.get("r", 8)),
        alpha=_number("lora_alpha", fields.get("lora_alpha", 8)),
        use_rslora=_flag(fields, "use_rslora"),
        rank_pattern={
            key: _integer(f"rank_pattern[{key!r}]", value)
            for key, value in _pattern_table(fields, "rank_pattern").items()
        },
        alpha_pattern={
            key: _number(f"alpha_pattern[{key!r}]", value)
            for key, value in _pattern_table(fields, "alpha_pattern").items()
        },
        target_modules=_names(fields, "target_modules"),
        exclude_modules=_names(fields, "exclude_modules"),
        layers_to_transform=_layers(fields.get("layers_to_transform")),
        layers_pattern=_layers_pattern(fields),
        ensure_weight_tying=_flag(fields, "ensure_weight_tying"),
        base_name=_text(fields, "base_model_name_or_path"),
        base_revision=_text(fields, "revision"),
    )
    _check_together(config)
    return config


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    if fields.get("peft_type") != "LORA":
        raise AdapterError(f"peft_type is {fields.get('peft_type')!r}; only LORA is supported")
    if fields.get("task_type") not in (None, "CAUSAL_LM"):
        raise AdapterError(f"task_type is {fields['task_type']!r}; only CAUSAL_LM is supported")
    if fields.get("bias", "none") != "none":
        raise AdapterError(f"bias is {fields['bias']!r}; only 'none' is supported")
    init = fields.get("init_lora_weights", True)
    if init is not None and not isinstance(init, bool) and init not in _PLAIN_INITS:
        raise AdapterError(
            f"init_lora_weights is {init!r}, which trains against a changed base model; convert "
            "the adapter to a plain LoRA when saving it"
        )
    for name, value in fields.items():
        if name in _NEUTRAL or name in _APPLIED or value in (None, False, [], {}, ""):
            continue
        reason = "not supported" if name in _REFUSED else "unknown to this version"
        raise AdapterError(f"{name} is {_shown(value)}; this field is {reason}")


def _check_together(config: AdapterConfig) -> None:
    """Combinations that PEFT refuses as well."""
    if not config.target_modules:
        raise AdapterError("target_modules is empty; name the modules the adapter changes")
    if isinstance(config.target_modules, str) and config.layers_to_transform:
        raise AdapterError("layers_to_transform needs target_modules to be a list, not a pattern")
    if config.layers_pattern and not config.layers_to_transform:
        raise AdapterError("layers_pattern is set without layers_to_transform")


def _is_named(path: str, names: str | Sequence[str]) -> bool:
    """A string is a pattern of the whole path; a list holds whole paths or their last parts."""
    if isinstance(names, str):
        return bool(names) and re.fullmatch(names, path) is not None
    return any(path == name or path.endswith(f".{name}") for name in names)


def _first_match(table: Mapping[str, Any], path: str) -> str:
    for key in table:
        if _path_end(key).match(path):
            return key
    return path


@lru_cache(maxsize=2 * _MAX_PATTERNS)  # a table's patterns are tried for every module
def _path_end(key: str) -> re.Pattern[str]:
    return re.compile(rf"(.*\.)?({key})$")


def _names(fields: Mapping[str, Any], name: str) -> str | Sequence[str]:
    value = fields.get(name) or []
    if isinstance(value, str):
        return check_pattern(name, value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        if len(value) > _MAX_NAMES:
            raise AdapterError(f"{name} has {len(value)} entries; at most {_MAX_NAMES}")
        return tuple(value)
    raise AdapterError(f"{name} is {_shown(value)}; it must be a pattern or a list of names")


def _layers(value: object) -> Sequence[int]:
    layers = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in layers):
        raise AdapterError(f"layers_to_transform is {_shown(value)}; it must be integers")
    return tuple(layers)


def _layers_pattern(fields: Mapping[str, Any]) -> Sequence[str]:
    value = fields.get("layers_pattern") or []
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list):
        raise AdapterError(f"layers_pattern is {_shown(value)}; it must be text or a list of text")
    return tuple(check_pattern("layers_pattern", pattern) for pattern in patterns)


def _pattern_table(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = fields.get(name) or {}
    if not isinstance(table, dict):
        raise AdapterError(f"{name} is {_shown(table)}; it must be an object")
    if len(table) > _MAX_PATTERNS:
        raise AdapterError(f"{name} has {len(table)} entries; at most {_MAX_PATTERNS}")
    for key in table:
        check_pattern(name, key, max_repeats=2)
    return table


def _integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise AdapterError(f"{name} is {_shown(value)}; it must be a positive integer")
    return value


def _number(name: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise AdapterError(f"{name} is {_shown(value)}; it must be a number")
    return float(value)


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name) or False
    if not isinstance(value, bool):
        raise AdapterError(f"{name} is {_shown(value)}; it must be true or false")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"{name} is {_shown(value)}; it must be text")
    return value or None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
