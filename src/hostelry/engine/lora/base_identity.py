"""Check that an adapter was trained on the base model that it is loaded for."""

from dataclasses import dataclass

from hostelry.engine.lora.config import AdapterConfig
from hostelry.engine.lora.errors import AdapterError


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseIdentity:
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
