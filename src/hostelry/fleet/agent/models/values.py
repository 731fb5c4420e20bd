"""Limits, errors and results of the models of one multi-model container."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hostelry.base.clock import Clock
from hostelry.base.errors import HostelryError, RetryableError, TerminalError
from hostelry.domain.model import MAX_TARGET_CHARS, is_target
from hostelry.fleet.agent.model_server import Answer
from hostelry.fleet.artifacts.protocol import Artifacts


class TargetModelError(TerminalError):
    """The request names a model that cannot be had: a ValidationError of the caller."""


class ModelNotReadyError(RetryableError):
    """The model is still being loaded: ModelNotReadyException (429)."""


class TargetModelLoadError(HostelryError):
    """The model cannot be loaded: ModelError (424) with the container's `status`, 507: no room."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


class TargetModelTooLargeError(TargetModelLoadError):
    """The model does not fit, whatever other models leave: 507."""

    def __init__(self, text: str) -> None:
        super().__init__(text, 507)


class ModelRoutes(Protocol):
    """The model routes of one container. No method raises for what the server does."""

    async def load(self, target: str, folder: Path, timeout_s: float) -> Answer:
        """POST /models."""
        ...

    async def unload(self, target: str) -> Answer:
        """DELETE /models/ID; succeeds if it is not there."""
        ...

    async def memory_bytes(self, target: str, files_bytes: int) -> int | None:
        """The memory that the loaded model takes, measured; None without any measurement.

        A measurement that is no report of the server's is at least `files_bytes`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModelLimits:
    """Bytes for models, and time limits.

    Args:
        memory_bytes: for loaded models.
        disk_bytes: for unpacked ones.
        accelerator_bytes: of accelerators, for what models declare; None: that is not counted.
        model_accelerator_bytes: what a model takes that declares nothing.
        wait_s: a request waits that long for its model.
        load_timeout_s: download and load may take that long; they outlive the request.
        unload_wait_s: so long others wait for the memory of a model that is unloaded.
        too_large_kept_s: so long a model that did not fit is refused while its object is the same.
        patience_s: after it, a model that waits for room keeps new requests from what must go.
        failure_kept_s: so long a failed load answers further requests; a missing object always.
        failure_kept_most_s: loads that fail again and again: twice as long each time, up to this.
        num_known: models that are remembered, loaded or not; and failed loads.
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


def unheard(_name: str, _taken_s: float) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetModelDeps:
    """What the models of a container are made of.

    `note` takes lines for the copy's log, `measured` the seconds of each download ("downloading"),
    load ("loading") and unload ("unloading").
    """

    routes: ModelRoutes
    artifacts: Artifacts
    clock: Clock
    note: Callable[[str], None]
    measured: Callable[[str, float], None] = unheard


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUse:
    """A model that is loaded and stays so until its release: ModelCacheHit and waiting time."""

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
    """The id that the container knows the model by: a digest, so that any name is a safe path."""
    return hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:40]
