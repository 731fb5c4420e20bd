"""Events of adapters below the pool, as the store reports them between steps."""

from dataclasses import dataclass

from hostelry.engine.lora.loader import StorageTier


@dataclass(frozen=True, slots=True)
class LoadedToHost:
    """The content is in host memory, read from `tier` in `load_s`."""

    content_id: str
    tier: StorageTier
    load_s: float


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """The content was requested and cannot be loaded now. A later request tries again."""

    content_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Uploaded:
    """The content is in its pages of the pool."""

    content_id: str


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """The content could not be copied. Its pages hold nothing usable."""

    content_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftHost:
    """The content was evicted from host memory."""

    content_id: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """No name and no request needs the content any longer: its pages can be released."""

    content_id: str


AdapterEvent = LoadedToHost | LoadFailed | Uploaded | UploadFailed | LeftHost | Dropped
