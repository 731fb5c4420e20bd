"""Limits, errors and results of the models of one multi-model container."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.domain.model import MAX_TARGET_CHARS, is_target
from hostelry.fleet.agent.model_server import Answer
from hostelry.fleet.artifacts.protocol import Artifacts


class TargetModelError(TerminalError):
    """The request's model does not exist or is invalid: the caller gets a ValidationError."""


class ModelNotReadyError(RetryableError):
    """The model is still being loaded: ModelNotReadyException (429)."""


class TargetModelLoadError(HostelryError):
    """The model cannot be loaded: ModelError (424) with the container's `status`, such as 507."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class TargetModelTooLargeError(TargetModelLoadError):
    """The model does not fit, even if all other models are evicted: 507."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 507)


class ModelRoutes(Protocol):
    """The model routes of one container. No method raises for an answer of the server."""

    async def load(self, target: str, folder: Path, timeout_s: float) -> Answer:
        """POST /models."""
        ...

    async def unload(self, target: str) -> Answer:
        """DELETE /models/ID. Succeeds if the model is not loaded."""
        ...

    async def memory_bytes(self, target: str, files_bytes: int) -> int | None:
        """The measured memory of the loaded model, or None if it could not be measured.

        A measurement that the server does not report counts as at least `files_bytes`.
        """
        ...


class TargetModelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes for models, and time limits.

    Args:
        memory_bytes: for loaded models.
        disk_bytes: for unpacked models.
        accelerator_bytes: of accelerators, for declared use. None if use is not declared.
        model_accelerator_bytes: for a model that declares no use.
        wait_s: time limit of a request's wait for its model.
        load_timeout_s: time limit of download and load together, which outlive the request.
        unload_wait_s: time limit of a load's wait for an unload.
        too_large_kept_s: time for which a model that did not fit is refused, unless it changes.
        patience_s: after this wait for room, the models that must go take no new requests.
        failure_kept_s: time for which a failed load answers further requests.
        failure_kept_most_s: limit of that time, which doubles with each failed load in a row.
        num_known: models that are remembered, loaded or not, and also failed loads.
    """

    memory_bytes: int
    disk_bytes: int
    accelerator_bytes: int | None = None
    model_accelerator_bytes: int = 0
    wait_s: float = 60.0
    load_timeout_s: float = 360.0
    unload_wait_s: float = 10.0
    too_large_kept_s: float = 3600.0
    patience_s: float = 10.0
    failure_kept_s: float = 5.0
    failure_kept_most_s: float = 300.0
    num_known: int = 10_000


def ignore_seconds(_name: str, _taken_s: float) -> None:
    """Do nothing."""


class TargetModelDeps(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies of a container's models.

    `note` takes lines for the copy's log, `record_seconds` the duration of each download
    ("downloading"), load ("loading") and unload ("unloading").
    """

    routes: ModelRoutes
    artifacts: Artifacts
    clock: Clock
    note: Callable[[str], None]
    record_seconds: Callable[[str, float], None] = ignore_seconds


class ModelUse(msgspec.Struct, frozen=True, kw_only=True):
    """A model that stays loaded until its release, with ModelCacheHit and waiting time."""

    target: str
    model_id: str
    hit: bool
    waited_s: float = 0.0


def check_target(target: str) -> None:
    """Raise TargetModelError unless `target` can follow a prefix as the key of an object."""
    if not 1 <= len(target) <= MAX_TARGET_CHARS:
        raise TargetModelError(
            f"TargetModel has {len(target)} characters; it must have 1 to {MAX_TARGET_CHARS}."
        )
    if not is_target(target):
        raise TargetModelError(
            f"TargetModel {target!r} is no path below ModelDataUrl: it must not begin or end with "
            f"a slash, nor have empty parts, dots alone, or characters that cannot be printed."
        )


def model_id(target: str) -> str:
    """The container's id of the model: a digest, so that any name is a safe path."""
    return hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:40]
