"""Rotary embeddings as a config.json describes them."""

from collections.abc import Mapping
from typing import Any

from hostelry.engine.models.fields import ConfigFields, quote
from hostelry.engine.models.spec import RopeSpec, UnsupportedModelError

_KINDS = ("default", "linear", "llama3")
_KNOWN = (
    "type",
    "rope_type",
    "rope_theta",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "original_max_position_embeddings",
)


def read_rope(fields: ConfigFields, default_theta: float, max_len: int) -> RopeSpec:
    """The rope of all layers, from rope_scaling with rope_theta, or from rope_parameters.

    Raises UnsupportedModelError for another type or an unknown parameter.
    """
    newer = fields.mapping("rope_parameters")
    scaling = fields.mapping("rope_scaling") or newer
    return parse_rope(scaling, fields.number("rope_theta", default_theta), max_len)


def parse_rope(scaling: Mapping[str, Any], theta: float, max_len: int) -> RopeSpec:
    """The rope that `scaling` describes. `theta` and `max_len` are defaults for absent members."""
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind not in _KINDS:
        raise UnsupportedModelError(
            f"config.json: rope type {quote(kind)} is not supported; default, linear and llama3 are"
        )
    _refuse_unknown(scaling)
    theta = _read_number(scaling, "rope_theta", theta)
    if kind == "default":
        return RopeSpec(theta=theta)
    if kind == "linear":
        return RopeSpec(theta=theta, kind=kind, factor=_read_number(scaling, "factor"))
    return _parse_llama3(scaling, theta, max_len)


def _parse_llama3(scaling: Mapping[str, Any], theta: float, max_len: int) -> RopeSpec:
    low, high = _read_number(scaling, "low_freq_factor"), _read_number(scaling, "high_freq_factor")
    if low >= high:
        raise UnsupportedModelError(
            f"config.json: rope low_freq_factor {low} must be below high_freq_factor {high}"
        )
    return RopeSpec(
        theta=theta,
        kind="llama3",
        factor=_read_number(scaling, "factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_max_len=int(_read_number(scaling, "original_max_position_embeddings", max_len)),
    )


def _refuse_unknown(scaling: Mapping[str, Any]) -> None:
    for name, value in scaling.items():
        is_neutral = value is None or (name == "partial_rotary_factor" and value == 1)
        if name not in _KNOWN and not is_neutral:
            raise UnsupportedModelError(f"config.json: rope {name} {quote(value)} is not supported")


def _read_number(scaling: Mapping[str, Any], name: str, default: float | None = None) -> float:
    value = scaling.get(name)
    if value is None:
        value = default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
        raise UnsupportedModelError(
            f"config.json: rope {name} is {quote(value)}; it must be a positive number"
        )
    return float(value)
