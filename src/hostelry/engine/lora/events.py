"""What happens to adapters below the pool, as the store reports it between steps."""

from dataclasses import dataclass

from hostelry.engine.lora.loader import StorageTier


@dataclass(frozen=True, slots=True)
class LoadedToHost:
    """It is in host memory now, read from `tier` in `load_s`."""

    content_id: str
    tier: StorageTier
    load_s: float


@dataclass(frozen=True, slots=True)
class LoadFailed:
    """It was asked for and cannot be had now; a later request tries again."""

    content_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Uploaded:
    """Its pages of the pool hold it now."""

    content_id: str


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """Its pages of the pool hold nothing of use."""

    content_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftHost:
    """It is no longer in host memory."""

    content_id: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """No name and no request needs it any longer: its pages can be given back."""

    content_id: str


AdapterEvent = LoadedToHost | LoadFailed | Uploaded | UploadFailed | LeftHost | Dropped
