"""adapter_config.json, read as PEFT would read it, or refused.

Source: the fields and matching rules of PEFT's LoraConfig, as of version 0.21.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.folder import find_regular_file
from hostelry.engine.lora.patterns import NamePattern, check_size, compile_pattern, quote_value

T = TypeVar("T")

_LARGEST = sys.float_info.max
# Fields without effect on the result at inference.
_TASK_TYPES = (None, "CAUSAL_LM", "FEATURE_EXTRACTION")
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
        "modules_to_save",
        "peft_type",
        "r",
        "rank_pattern",
        "target_modules",
        "task_type",
        "use_rslora",
    )
)

# Fields that adapters in use have set, without effect on the result. A warning says why.
_HARMLESS = {
    "enable_lora": "PEFT's MergedLinear had it until version 0.2; its tensors have other shapes",
    "fan_in_fan_out": "the base has linear modules only, for which PEFT sets it to false",
    "merge_weights": "it said when PEFT 0.2 adds the update to the weights, not which update",
}

# Fields of PEFT that change the result in ways not implemented here. A field in no list, perhaps of
# a later PEFT, is treated alike: refused as soon as it is set.
_REFUSED = frozenset(
    (
        "alora_invocation_tokens",
        "arrow_config",
        "kasa_config",
        "layer_replication",
        "lora_bias",
        "megatron_config",
        "monteclora_config",
        "target_parameters",
        "trainable_token_indices",
        "use_bdlora",
        "use_dora",
        "use_qalora",
        "velora_config",
    )
)

# Ways to start training that leave the base weights alone. The others (pissa, olora, corda, loftq,
# lora_ga) train against a changed base, so that the adapter is wrong on the plain base.
_PLAIN_INITS = ("gaussian", "eva", "mica", "orthogonal")

_VOCABULARY = ("embed_tokens", "lm_head")

CONFIG_NAME = "adapter_config.json"
_MAX_CONFIG_BYTES = 1 << 20
_MAX_NAMES = 10_000  # in one list. The largest models have fewer modules
_MAX_PATTERNS = 2000  # in one table. The largest models have fewer modules
_MAX_LAYERS = 10_000


class ModuleNames(msgspec.Struct, frozen=True):
    """Modules named by a field of the configuration: by one pattern, or a set of names."""

    pattern: NamePattern | None = None
    names: frozenset[str] = frozenset()
    text: str = "[]"  # as the field has it, cut to a readable length
    is_all_linear: bool = False

    def __bool__(self) -> bool:
        return self.pattern is not None or bool(self.names)

    def has(self, path: str) -> bool:
        """Whether the whole path matches the pattern, or it or an end of it is a name."""
        if self.pattern is not None:
            return self.pattern.fullmatch(path) is not None
        return not self.names.isdisjoint(_iterate_ends(path))


class PatternTable(msgspec.Struct, Generic[T], frozen=True):
    """Values by pattern of a path's end. The first pattern that matches decides."""

    rows: Sequence[tuple[NamePattern, T]] = ()

    def get(self, path: str, default: T) -> T:
        """The value for the module at `path`."""
        return next((value for pattern, value in self.rows if pattern.match(path)), default)


class AdapterConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a LoRA adapter that decide its result.

    `base_name` and `base_revision` name the model it was trained on and decide nothing.
    `modules_to_save` are names of modules whose whole weights lie with the adapter. With
    `starts_without_effect` PEFT starts a module whose tensors are missing with B A of zeros.
    """

    rank: int
    alpha: float
    use_rslora: bool
    rank_pattern: PatternTable[int]
    alpha_pattern: PatternTable[float]
    target_modules: ModuleNames
    exclude_modules: ModuleNames
    layers_to_transform: frozenset[int]
    layers_pattern: Sequence[NamePattern]
    ensure_weight_tying: bool = False
    modules_to_save: frozenset[str] = frozenset()
    starts_without_effect: bool = True
    warnings: tuple[str, ...] = ()
    base_name: str | None = None
    base_revision: str | None = None

    @property
    def targets_all_linear(self) -> bool:
        """Whether target_modules is PEFT's short form for every linear module of the layers."""
        return self.target_modules.is_all_linear

    def targets(self, path: str) -> bool:
        """True if the adapter changes the module at `path`. all-linear targets all layers."""
        if self.excludes(path) or self.saves(path):
            return False
        if self.targets_all_linear:
            return True
        if path in self.target_modules.names:  # in full, whatever layers_to_transform says
            return True
        return self.target_modules.has(path) and self._targets_layer(path)

    def excludes(self, path: str) -> bool:
        """Whether exclude_modules names the module at `path`."""
        return self.exclude_modules.has(path)

    def saves(self, path: str) -> bool:
        """True if modules_to_save names the module at `path`, or a module that contains it."""
        return any(f".{name}." in f".{path}." for name in self.modules_to_save)

    @property
    def names_vocabulary(self) -> bool:
        """Whether target_modules names the embedding or lm_head, as PEFT asks before it ties."""
        named = self.target_modules
        if named.pattern is not None:
            return any(named.has(module) for module in _VOCABULARY)
        return any(name.split(".")[-1] in _VOCABULARY for name in named.names)

    def get_rank(self, path: str) -> int:
        """The module's rank: the first matching key of rank_pattern, else `r`."""
        return self.rank_pattern.get(path, self.rank)

    def get_scale(self, path: str) -> float:
        """The scale of B A x: alpha / r, with rsLoRA alpha / sqrt(r). r is the module's rank."""
        alpha = self.alpha_pattern.get(path, self.alpha)
        rank = self.get_rank(path)
        return alpha / math.sqrt(rank) if self.use_rslora else alpha / rank

    def _targets_layer(self, path: str) -> bool:
        if not self.layers_to_transform:
            return True
        for pattern in self.layers_pattern or [_ANY_LAYER]:
            match = pattern.match(path)
            if match:
                return int(match["layer"]) in self.layers_to_transform
        return False


def load_config(folder: Path) -> AdapterConfig:
    """The configuration of the adapter in `folder`. Raises AdapterError with the reason."""
    path = find_regular_file(folder, CONFIG_NAME, max_bytes=_MAX_CONFIG_BYTES)
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
        rank=_check_integer("r", fields.get("r", 8)),
        alpha=_check_number("lora_alpha", fields.get("lora_alpha", 8)),
        use_rslora=_read_flag(fields, "use_rslora"),
        rank_pattern=PatternTable(
            [
                (pattern, _check_integer(f"rank_pattern[{key!r}]", value))
                for key, pattern, value in _read_pattern_rows(fields, "rank_pattern")
            ]
        ),
        alpha_pattern=PatternTable(
            [
                (pattern, _check_number(f"alpha_pattern[{key!r}]", value))
                for key, pattern, value in _read_pattern_rows(fields, "alpha_pattern")
            ]
        ),
        target_modules=_read_names(fields, "target_modules"),
        exclude_modules=_read_names(fields, "exclude_modules"),
        layers_to_transform=_read_layers(fields.get("layers_to_transform")),
        layers_pattern=_read_layers_pattern(fields),
        ensure_weight_tying=_read_flag(fields, "ensure_weight_tying"),
        modules_to_save=_read_names(fields, "modules_to_save").names,
        starts_without_effect=bool(fields.get("init_lora_weights", True)),
        warnings=tuple(
            f"{name} is {quote_value(fields[name])}, which has no effect: {reason}"
            for name, reason in _HARMLESS.items()
            if fields.get(name)
        ),
        base_name=_read_text(fields, "base_model_name_or_path"),
        base_revision=_read_text(fields, "revision"),
    )
    _check_together(config)
    check_size(_iterate_patterns(config))
    return config


def _refuse_unsupported(fields: Mapping[str, Any]) -> None:
    if fields.get("peft_type") != "LORA":
        raise AdapterError(f"peft_type is {fields.get('peft_type')!r}; only LORA is supported")
    if fields.get("task_type") not in _TASK_TYPES:
        raise AdapterError(
            f"task_type is {fields['task_type']!r}; only CAUSAL_LM and FEATURE_EXTRACTION are "
            "supported"
        )
    if fields.get("bias", "none") != "none":
        raise AdapterError(f"bias is {fields['bias']!r}; only 'none' is supported")
    init = fields.get("init_lora_weights", True)
    if init is not None and not isinstance(init, bool) and init not in _PLAIN_INITS:
        raise AdapterError(
            f"init_lora_weights is {init!r}, which trains against a changed base model; convert "
            "the adapter to a plain LoRA when saving it"
        )
    for name, value in fields.items():
        if (
            name in _NEUTRAL
            or name in _APPLIED
            or name in _HARMLESS
            or value in (None, False, [], {}, "")
        ):
            continue
        reason = "not supported" if name in _REFUSED else "unknown to this version"
        raise AdapterError(f"{name} is {quote_value(value)}; this field is {reason}")


def _check_together(config: AdapterConfig) -> None:
    """Raise AdapterError for combinations that PEFT refuses too."""
    if not config.target_modules:
        raise AdapterError("target_modules is empty; name the modules the adapter changes")
    is_pattern = config.target_modules.pattern is not None
    if is_pattern and config.layers_to_transform:
        raise AdapterError("layers_to_transform needs target_modules to be a list, not a pattern")
    if config.layers_pattern and not config.layers_to_transform:
        raise AdapterError("layers_pattern is set without layers_to_transform")
    if config.ensure_weight_tying and config.modules_to_save:
        raise AdapterError("ensure_weight_tying together with modules_to_save is not supported")


def _iterate_ends(path: str) -> Iterator[str]:
    """The path, and the rest after each of its dots."""
    yield path
    while path:
        path = path.partition(".")[2]
        yield path


def _iterate_patterns(config: AdapterConfig) -> Iterator[NamePattern]:
    """Every pattern of an adapter."""
    for names in (config.target_modules, config.exclude_modules):
        if names.pattern is not None:
            yield names.pattern
    yield from config.layers_pattern
    for table in (config.rank_pattern, config.alpha_pattern):
        yield from (pattern for pattern, _ in table.rows)


def _read_names(fields: Mapping[str, Any], name: str) -> ModuleNames:
    value = fields.get(name) or []
    if isinstance(value, str):
        if value.lower() == "all-linear" and name == "target_modules":
            return ModuleNames(compile_pattern(name, value), text=repr(value), is_all_linear=True)
        if name != "modules_to_save":
            return ModuleNames(compile_pattern(name, value), text=quote_value(value))
    elif isinstance(value, list) and all(isinstance(item, str) for item in value):
        if len(value) > _MAX_NAMES:
            raise AdapterError(f"{name} has {len(value)} entries; at most {_MAX_NAMES}")
        return ModuleNames(names=frozenset(value) - {""}, text=quote_value(value))
    raise AdapterError(f"{name} is {quote_value(value)}; it must be a pattern or a list of names")


def _read_layers(value: object) -> frozenset[int]:
    layers = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in layers):
        raise AdapterError(f"layers_to_transform is {quote_value(value)}; it must be integers")
    if len(layers) > _MAX_LAYERS:
        raise AdapterError(f"layers_to_transform has {len(layers)} entries; at most {_MAX_LAYERS}")
    return frozenset(layers)


def _read_layers_pattern(fields: Mapping[str, Any]) -> Sequence[NamePattern]:
    value = fields.get("layers_pattern") or []
    patterns = [value] if isinstance(value, str) else value
    if not isinstance(patterns, list):
        raise AdapterError(
            f"layers_pattern is {quote_value(value)}; it must be text or a list of text"
        )
    if len(patterns) > _MAX_PATTERNS:
        raise AdapterError(f"layers_pattern has {len(patterns)} entries; at most {_MAX_PATTERNS}")
    form = rf"(?:^|.*?\.){{}}{_LAYER}"
    return tuple(compile_pattern("layers_pattern", pattern, form) for pattern in patterns)


def _read_pattern_rows(
    fields: Mapping[str, Any], name: str
) -> Iterator[tuple[str, NamePattern, Any]]:
    """The key, the compiled pattern for ends of paths, and the value of each row."""
    table = fields.get(name) or {}
    if not isinstance(table, dict):
        raise AdapterError(f"{name} is {quote_value(table)}; it must be an object")
    if len(table) > _MAX_PATTERNS:
        raise AdapterError(f"{name} has {len(table)} entries; at most {_MAX_PATTERNS}")
    for key, value in table.items():
        yield key, compile_pattern(name, key, r"(?:.*\.)?(?:{})$"), value


def _check_integer(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise AdapterError(f"{name} is {quote_value(value)}; it must be a positive integer")
    return value


def _check_number(name: str, value: object) -> float:
    is_bool = isinstance(value, bool)
    # False for NaN, exact for integers.
    if isinstance(value, int | float) and not is_bool and -_LARGEST <= value <= _LARGEST:
        return float(value)
    raise AdapterError(f"{name} is {quote_value(value)}; it must be a number")


def _read_flag(fields: Mapping[str, Any], name: str) -> bool:
    value = fields.get(name) or False
    if not isinstance(value, bool):
        raise AdapterError(f"{name} is {quote_value(value)}; it must be true or false")
    return value


def _read_text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise AdapterError(f"{name} is {quote_value(value)}; it must be text")
    return value or None


_LAYER = r"\.(?P<layer>\d+)\."
_ANY_LAYER = compile_pattern("layers_pattern", r".*?\.[^.]*", "{}" + _LAYER)


class BaseIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Names of the base (hub name, folder), and its revision. Empty and None: unknown."""

    names: tuple[str, ...] = ()
    revision: str | None = None


def check_base(config: AdapterConfig, base: BaseIdentity, *, strict: bool) -> tuple[str, ...]:
    """Warnings if the adapter's configuration names another base or another revision of it.

    A path or a name of another organisation counts as the same base if its last part is the same.
    With `strict` the whole name must be one of the base's, and AdapterError is raised instead of a
    warning.
    """
    found = []
    name, revision = config.base_name, config.base_revision
    if not _is_same(name, base.names, strict=strict):
        known = " or ".join(repr(it) for it in base.names) or "not known"
        found.append(f"base_model_name_or_path is {name!r}; this base model is {known}")
    if revision and base.revision and revision != base.revision:
        found.append(f"revision is {revision!r}; this base model's is {base.revision!r}")
    if found and strict:
        raise AdapterError(f"{'; '.join(found)} (strict_base asks for the same)")
    return tuple(found)


def _is_same(name: str | None, names: tuple[str, ...], *, strict: bool) -> bool:
    if strict:
        return name in names
    if name is None or not names:
        return True
    return _last_part(name) in {_last_part(it) for it in names}


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1].lower()
