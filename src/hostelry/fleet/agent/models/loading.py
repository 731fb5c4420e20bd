"""Download and load of one model of a multi-model container."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from hostelry.base.errors import TerminalError
from hostelry.base.json import decode
from hostelry.domain.model import ArtifactSource, SourceKind
from hostelry.fleet.agent.models.tiers import HostedModel, ModelTiers, TooLarge
from hostelry.fleet.agent.models.values import (
    TargetModelDeps,
    TargetModelError,
    TargetModelLimits,
    TargetModelLoadError,
    TargetModelTooLargeError,
)
from hostelry.fleet.artifacts.objects import split_uri
from hostelry.fleet.artifacts.protocol import (
    ArtifactCacheFullError,
    ArtifactError,
    ArtifactUnavailableError,
    Fetch,
)
from hostelry.fleet.rules.devices import MAX_MB, MB
from hostelry.placement.model_cache import expected_disk_bytes, expected_memory_bytes
from hostelry.placement.model_cache_values import ModelTier

# Declares a model's accelerator memory, at the top of its archive: {"accelerator_memory_mb": 512}.
# Without the file the container's declaration counts (fleet/rules/devices.py).
FILE = "hostelry.json"
MAX_FILE_BYTES = 64 * 1024


class DeclaredModel(msgspec.Struct, forbid_unknown_fields=True):
    """The file of a model."""

    accelerator_memory_mb: Annotated[int, msgspec.Meta(ge=0, le=MAX_MB)] | None = None


def accelerator_bytes(folder: Path, otherwise_bytes: int) -> int:
    """The accelerator memory that the model in `folder` declares, else `otherwise_bytes`.

    Raises TerminalError with the file's fault.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # the archive may have a link or a pipe
    try:
        with open(os.open(folder / FILE, flags), "rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1) or b""
    except FileNotFoundError:
        return otherwise_bytes
    except OSError as error:
        raise TerminalError(f"{FILE} of the model cannot be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise TerminalError(f"{FILE} of the model has more than {MAX_FILE_BYTES} bytes")
    try:
        found = decode(content, DeclaredModel)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TerminalError(f"{FILE} of the model: {error}") from error
    declared = found.accelerator_memory_mb
    return otherwise_bytes if declared is None else declared * MB


MAX_REFUSALS = 8  # of one load. Each frees twice as much as the previous refusal
RETRY_S = 1.0
LEFT_PAUSE_S = 0.2
OUT_OF_RESOURCES = 507
ALREADY_LOADED = 409
INVALID = 400


class ModelLoading:
    """Brings models of a container from the object store into its memory."""

    def __init__(
        self, prefix_uri: str, tiers: ModelTiers, deps: TargetModelDeps, limits: TargetModelLimits
    ) -> None:
        self._prefix_uri = prefix_uri.removesuffix("/")
        self._tiers = tiers
        self._deps = deps
        self._limits = limits
        self._full_disk = asyncio.Lock()

    async def load_model(self, model: HostedModel) -> None:
        """Load the model, and download it first if the instance lacks its files.

        Raises TargetModelError or TargetModelLoadError. Memory and disk are then given back.
        """
        if model.ready:  # draining, so that another model gets its memory
            await self._tiers.await_turn()
            if model.ready:
                self._tiers.grant(model)
                return
        model.loading = True
        self._tiers.update_facts(model)
        try:
            async with asyncio.timeout(self._limits.load_timeout_s):
                if model.unload is not None:
                    await asyncio.shield(model.unload)
                await self._tiers.unstick(model)
                await self._check_too_large(model)
                folder = await self._download(model)
                await self._load_or_record_size(model, folder)
        except TimeoutError as error:
            raise TargetModelLoadError(
                f"Model {model.facts.key} was not loaded within {self._limits.load_timeout_s:g} s."
            ) from error
        finally:
            model.loading = False
            self._tiers.update_facts(model)

    async def _download(self, model: HostedModel) -> Path:
        """The folder with the model's files, which are downloaded if the instance lacks them."""
        known = model.facts.on_disk
        before_bytes = model.facts.disk_bytes
        try:
            if not known:
                need_bytes = expected_disk_bytes(model.facts, self._tiers.facts)
                if not before_bytes:
                    need_bytes = self._tiers.limit_estimate(ModelTier.DISK, need_bytes)
                await self._tiers.reserve_disk(model, need_bytes)
            started_s = self._deps.clock.now()
            folder = await self._fetch_with_room(model)
            if known:
                return folder
            took_s = self._deps.clock.now() - started_s
            self._deps.record_seconds("downloading", took_s)
            # If the artifact cache had kept the files, the time says nothing about a download.
            took_s = max(took_s, model.facts.download_s / 2)
            size_bytes = await asyncio.to_thread(_size_bytes, folder)
            model.facts = replace(
                model.facts, on_disk=True, disk_bytes=size_bytes, download_s=took_s
            )
            self._tiers.shrink(ModelTier.DISK, model)
        except BaseException:
            model.facts = replace(model.facts, disk_bytes=before_bytes)
            self._tiers.remove_files(model)
            raise
        return folder

    async def _fetch_with_room(self, model: HostedModel) -> Path:
        try:
            return await self._fetch(model)
        except ArtifactCacheFullError as error:
            full = error
        # Singly, and without a share of the disk meanwhile. Otherwise each would wait for the end
        # of the others.
        self._tiers.remove_files(model)
        async with self._full_disk:
            for attempt in range(1, MAX_REFUSALS + 1):
                await self._tiers.free_more(model, ModelTier.DISK, full.lacking_bytes, attempt)
                try:
                    return await self._fetch(model)
                except ArtifactCacheFullError as error:
                    full = error
        raise TargetModelLoadError(f"Model {model.facts.key}: {full}", OUT_OF_RESOURCES)

    async def _fetch(self, model: HostedModel) -> Path:
        """The model's folder. Waits for an object store that does not answer."""
        uri = f"{self._prefix_uri}/{model.facts.key}"
        want = Fetch(
            source=ArtifactSource(uri=uri, kind=SourceKind.ARCHIVE),
            holder=self._tiers.holder(model),
            note=self._deps.note,
        )
        while True:
            try:
                return await self._deps.artifacts.fetch(want)
            except ArtifactUnavailableError as error:
                self._deps.note(f"{error}; trying again")
                await self._deps.clock.sleep(RETRY_S)
            except ArtifactCacheFullError:
                raise
            except ArtifactError as error:
                bucket, key = split_uri(uri)
                raise TargetModelError(
                    f"Failed to download model data(bucket: {bucket}, key: {key}). Please ensure "
                    f"that there is an object located at the URL and that it can be read. {error}"
                ) from error

    async def _check_too_large(self, model: HostedModel) -> None:
        """Raise TargetModelTooLargeError for a model that did not fit, until its object changes.

        Otherwise each request for it would evict other models in vain.
        """
        known, model.too_large = model.too_large, None
        if known is None or self._deps.clock.now() >= known.until_s:
            return
        try:
            folder = await self._fetch(model)
        except ArtifactCacheFullError:  # nothing leaves the disk for it, either
            folder = known.folder
        if folder == known.folder:
            model.too_large = known
            self._tiers.remove_files(model)
            raise known.error.with_traceback(None)

    async def _load_or_record_size(self, model: HostedModel, folder: Path) -> None:
        try:
            await self._load(model, folder)
        except TargetModelTooLargeError as error:
            until_s = self._deps.clock.now() + self._limits.too_large_kept_s
            model.too_large = TooLarge(folder, error, until_s)
            self._tiers.remove_files(model)  # so that a new version of the object is found
            raise

    async def _load(self, model: HostedModel, folder: Path) -> None:
        need_bytes = expected_memory_bytes(model.facts, self._tiers.facts)
        if not model.facts.memory_bytes:
            need_bytes = self._tiers.limit_estimate(ModelTier.MEMORY, need_bytes)
        before_bytes = model.facts.memory_bytes
        await self._record_declared(model, folder)
        try:
            await self._tiers.reserve_memory(model, need_bytes)
            await self._post_model(model, folder, need_bytes)
            measured = await self._deps.routes.memory_bytes(model.facts.key, model.facts.disk_bytes)
            if measured is not None:
                model.facts = replace(model.facts, memory_bytes=measured)
                self._tiers.shrink(ModelTier.MEMORY, model)
        except BaseException:
            # Sizes that were refused are forgotten, because the object may become smaller.
            model.facts = replace(model.facts, memory_bytes=before_bytes)
            self._tiers.withdraw(model)
            raise
        self._tiers.grant(model)

    async def _record_declared(self, model: HostedModel, folder: Path) -> None:
        """Record the accelerator memory that the model declares."""
        if self._limits.accelerator_bytes is None:
            return
        otherwise_bytes = self._limits.model_accelerator_bytes
        try:
            declared = await asyncio.to_thread(accelerator_bytes, folder, otherwise_bytes)
        except TerminalError as error:
            raise TargetModelLoadError(str(error), INVALID) from error
        model.facts = replace(model.facts, accelerator_bytes=declared)

    async def _post_model(self, model: HostedModel, folder: Path, need_bytes: int) -> None:
        """POST /models until the container takes the model. Makes more room after each 507."""
        refusal = ""
        for attempt in range(1, MAX_REFUSALS + 1):
            started_s = self._deps.clock.now()
            answer = await self._deps.routes.load(
                model.facts.key, folder, self._limits.load_timeout_s
            )
            is_left = bool(refusal) and answer.status == ALREADY_LOADED
            if answer.fault is None and not is_left:
                took_s = self._deps.clock.now() - started_s
                self._deps.record_seconds("loading", took_s)
                if answer.status != ALREADY_LOADED:
                    model.facts = replace(model.facts, load_s=took_s)
                return
            if answer.fault is not None and answer.status != OUT_OF_RESOURCES:
                raise TargetModelLoadError(answer.fault, answer.status)
            # AWS's multi-model-server keeps a model that did not fit, and answers 409 from then on.
            # For a moment after its 507 it answers 404 to the model's DELETE.
            await self._deps.routes.unload(model.facts.key)
            if answer.fault is None:
                await self._deps.clock.sleep(LEFT_PAUSE_S)
                continue
            refusal = answer.fault
            await self._tiers.free_more(model, ModelTier.MEMORY, need_bytes, attempt)
        raise TargetModelLoadError(refusal, OUT_OF_RESOURCES)


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
