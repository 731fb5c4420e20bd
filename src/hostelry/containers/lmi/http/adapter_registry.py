"""Registered adapters: the names that requests may use, over the engine's adapters."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import msgspec
from msgspec.structs import replace

from hostelry.containers.lmi.adapters.fetchers import SCHEMES
from hostelry.containers.lmi.code.author_code import AuthorCode, CodeHost
from hostelry.containers.lmi.engine.backend import (
    AdapterCapacityError,
    AdapterExistsError,
    AdapterMissingError,
    AdapterRefusedError,
    AdapterView,
    BackendError,
    BusyError,
    EngineBackend,
)
from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request
from hostelry.containers.lmi.settings.code_settings import SecureMode, SecureModeError

MAX_NAME_CHARACTERS = 256
MAX_SRC_CHARACTERS = 4096
MAX_CHANGES = 1000  # in progress at a time, including changes that wait for another change
CHANGES_RETRY_S = 1.0
DEFAULT_LIMIT_S = 1800.0

CAUSES: Mapping[type[BackendError], Cause] = {
    AdapterExistsError: Cause.CONFLICT,
    AdapterRefusedError: Cause.DEPENDENCY,
    AdapterCapacityError: Cause.NO_MEMORY,
}

LOG = logging.getLogger(__name__)


class AdapterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One registered adapter. `alias` is its display name, `src` a path or URI.

    An adapter that was registered with preload false is not `loaded` until its first request.
    """

    name: str
    alias: str
    src: str
    preload: bool = True
    pin: bool = False
    loaded: bool = True


class AdapterRegistry:
    """Registered adapters by name. Changes of one name happen one after the other.

    At most `max_pinned` adapters may be pinned. Reading an adapter takes at most `limit_s`. The
    adapter's own code is loaded before its weights. A change that fails has no effect.
    """

    def __init__(
        self,
        backend: EngineBackend,
        *,
        enabled: bool,
        max_pinned: int,
        limit_s: float = DEFAULT_LIMIT_S,
        code: AuthorCode | None = None,
        secure: SecureMode | None = None,
    ) -> None:
        self._backend = backend
        self._code = code
        self._secure = secure
        self._max_pinned = max_pinned
        self._limit_s = limit_s
        self._records: dict[str, AdapterRecord] = {}
        self._pinning: set[str] = set()  # names that are about to be pinned
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._num_changes = 0
        self.enabled = enabled

    @property
    def records(self) -> Mapping[str, AdapterRecord]:
        """Every registered adapter by name, oldest first."""
        return self._records

    def adopt(self, folders: Iterable[tuple[str, Path]]) -> None:
        """Add records for adapters that the engine loaded at its start."""
        for name, folder in folders:
            self._records[name] = AdapterRecord(name=name, alias=name, src=str(folder))

    async def register(self, record: AdapterRecord) -> None:
        """Register the adapter. Raises Refusal."""
        self._check_enabled()
        check_name(record.name)
        src = clean_src(record.src)
        if record.pin and not record.preload:
            raise Refusal(Cause.DEPENDENCY, "Can not set preload to false and pin to true")
        async with self._changing(record.name):
            if record.name in self._records:
                raise Refusal(
                    Cause.CONFLICT,
                    f"Adapter {record.alias} already exists. If you want to register again, "
                    "please unregister it first.",
                )
            await self._check_src(src)
            with_src = replace(record, src=src, loaded=record.preload)
            async with self._load_code(record.name, src):
                if record.preload:
                    await self._load(with_src)
                self._records[record.name] = with_src
        LOG.info("Registered adapter %s from %s successfully", record.alias, src)

    async def update(
        self, name: str, *, src: str | None, preload: bool | None, pin: bool | None
    ) -> AdapterRecord:
        """Swap, load, pin or unpin a registered adapter. Raises Refusal.

        With `src` the adapter is read again, even if `src` has not changed. Requests in flight end
        on the version that they began with.
        """
        self._check_enabled()
        async with self._changing(name):
            record = self.find(name)
            updated = replace(
                record,
                src=record.src if src is None else clean_src(src),
                pin=record.pin if pin is None else pin,
                preload=record.preload if preload is None else preload,
            )
            if src is None:
                return await self._apply_change(record, updated, preload)
            await self._check_src(updated.src)
            async with self._load_code(name, updated.src):
                return await self._apply_change(record, updated, preload, is_new=True)

    async def _apply_change(
        self,
        record: AdapterRecord,
        updated: AdapterRecord,
        preload: bool | None,
        is_new: bool = False,
    ) -> AdapterRecord:
        should_load = record.loaded or preload or updated.pin
        if should_load and (is_new or not record.loaded):
            updated = replace(updated, loaded=True)
            await self._load(updated, old=record)
        elif updated.pin and not record.pin:
            await self._pin(updated)
        if record.pin and not updated.pin and record.loaded:
            await self._set_pin(record.name, False)
        self._records[record.name] = updated
        return updated

    async def unregister(self, name: str) -> AdapterRecord:
        """Remove the adapter. Requests that run with it finish. Raises Refusal."""
        self._check_enabled()
        async with self._changing(name):
            record = self.find(name)
            if record.loaded:
                try:
                    await self._backend.unload_adapter(name)
                except AdapterMissingError:
                    LOG.warning("adapter %s was not loaded in the engine", name)
                except BackendError as error:
                    raise Refusal(Cause.ENGINE, str(error)) from error
            del self._records[name]
            await self._adopt(name, None)
        LOG.info("Unregistered adapter %s", record.alias)
        return record

    async def ensure_loaded(self, names: Iterable[str | None]) -> None:
        """Load the adapters in `names` that were registered without preload. Raises Refusal."""
        for name in names:
            record = self._records.get(name) if name else None
            if record is None or record.loaded:
                continue
            async with self._changing(record.name):
                record = self.find(record.name)
                if not record.loaded:
                    await self._load(record)
                    self._records[record.name] = replace(record, loaded=True)

    async def view(self, name: str) -> AdapterView | None:
        """The adapter's state in the engine. None if it is not loaded. Raises Refusal."""
        if not self.find(name).loaded:
            return None
        try:
            return await self._backend.adapter(name)
        except AdapterMissingError:
            return None
        except BackendError as error:
            raise Refusal(Cause.ENGINE, str(error)) from error

    def find(self, name: str) -> AdapterRecord:
        """The adapter's record. Raises Refusal (404) for an unknown name."""
        try:
            return self._records[name]
        except KeyError:
            raise Refusal(Cause.NOT_FOUND, f"Adapter {name} is not registered") from None

    async def _check_src(self, src: str) -> None:
        """Raise Refusal for a folder that does not exist, or that secure mode forbids."""
        if self._secure is not None:
            try:
                await asyncio.to_thread(self._secure.check_adapter, src)
            except SecureModeError as error:
                raise Refusal(Cause.BAD_REQUEST, str(error), "src") from error
        await check_exists(src)

    @asynccontextmanager
    async def _load_code(self, name: str, src: str) -> AsyncIterator[None]:
        """Load the adapter's own code, and use it once the block has succeeded. Raises Refusal."""
        host = await self._code.load_adapter(name, src) if self._code else None
        try:
            yield
        except BaseException:
            if self._code:
                await self._code.discard(host)
            raise
        await self._adopt(name, host)

    async def _adopt(self, name: str, host: CodeHost | None) -> None:
        if self._code is not None:
            await self._code.discard(self._code.adopt(name, host))

    @asynccontextmanager
    async def _changing(self, name: str) -> AsyncIterator[None]:
        """Hold the name's lock for a change. Raises Refusal if too many changes are in progress."""
        if self._num_changes >= MAX_CHANGES:
            raise Refusal(
                Cause.QUEUE_FULL,
                f"{MAX_CHANGES} changes of adapters are in progress; try again in a moment",
                retry_after_s=CHANGES_RETRY_S,
            )
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._num_changes += 1
        try:
            async with lock:
                yield
        finally:
            self._num_changes -= 1

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise bad_request("LoRA is not enabled. Set option.enable_lora=true to use adapters.")

    def _check_pins(self, name: str) -> None:
        pinned = {record.name for record in self._records.values() if record.pin} | self._pinning
        if len(pinned - {name}) >= self._max_pinned:
            raise Refusal(
                Cause.NO_MEMORY,
                f"No free lora slots: {len(pinned)} adapters are pinned and "
                f"max_loras/max_cpu_loras allows {self._max_pinned}",
            )

    async def _pin(self, record: AdapterRecord) -> None:
        self._check_pins(record.name)
        self._pinning.add(record.name)
        try:
            await self._set_pin(record.name, True)
        finally:
            self._pinning.discard(record.name)

    async def _set_pin(self, name: str, pin: bool) -> None:
        try:
            await self._backend.pin_adapter(name, pin)
        except BackendError as error:
            raise build_change_refusal(error) from error

    async def _load(self, record: AdapterRecord, old: AdapterRecord | None = None) -> None:
        """Have the engine read the record's source, as a new version if `old` is given."""
        if record.pin:
            self._check_pins(record.name)
            self._pinning.add(record.name)
        try:
            await self._backend.register_adapter(
                record.name,
                record.src,
                pin=record.pin,
                replace=old is not None and old.loaded,
                limit_s=self._limit_s,
            )
        except BackendError as error:
            raise build_change_refusal(error) from error
        finally:
            self._pinning.discard(record.name)


def build_change_refusal(error: BackendError) -> Refusal:
    """The refusal of a change that failed in the engine."""
    if isinstance(error, BusyError):
        return Refusal(Cause.QUEUE_FULL, str(error), retry_after_s=error.retry_after_s)
    return Refusal(CAUSES.get(type(error), Cause.ENGINE), str(error))


def check_name(name: str) -> None:
    """Raise Refusal for a name that cannot be part of a path of this API."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or "/" in name or not name.isprintable():
        raise bad_request(
            f"name is {name[:80]!r}; it must be 1 to {MAX_NAME_CHARACTERS} printable characters "
            "without a slash",
            "name",
        )


def clean_src(src: str) -> str:
    """`src` as a local path, or as a URI of a known remote scheme.

    Raises Refusal for other URLs.
    """
    if len(src) > MAX_SRC_CHARACTERS or not src.isprintable():
        raise bad_request(
            f"src is {src[:80]!r}; it must be at most {MAX_SRC_CHARACTERS} printable characters",
            "src",
        )
    try:
        parts = urlsplit(src)
    except ValueError as error:
        raise bad_request(f"src is {src[:80]!r}, which is no URL: {error}", "src") from error
    if parts.scheme == "file":
        return unquote(parts.path)
    if parts.scheme in SCHEMES and src.startswith(f"{parts.scheme}://"):
        return src
    if parts.scheme:
        raise Refusal(
            Cause.CONFLICT,
            f"src is {src}; it must be a folder of this machine, s3://BUCKET/PREFIX (or .tar.gz) "
            "or hf://ORGANISATION/NAME",
            "src",
        )
    return src


async def check_exists(src: str) -> None:
    """Raise Refusal for a missing folder. A remote source is checked when it is read."""
    if "://" not in src and not await asyncio.to_thread(is_folder, src):
        raise Refusal(Cause.DEPENDENCY, f"Adapter path {src} is not a folder")


def is_folder(path: str) -> bool:
    """True if the folder exists. False for a name that no file system allows."""
    try:
        return Path(path).is_dir()
    except OSError:  # such as a name that is too long
        return False
