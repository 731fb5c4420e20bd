"""The adapters that requests may name, over what the engine has loaded."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hostelry.containers.lmi.backend import (
    AdapterCapacityError,
    AdapterExistsError,
    AdapterMissingError,
    AdapterRefusedError,
    EngineBackend,
    EngineFailedError,
)
from hostelry.containers.lmi.refusal import Cause, Refusal, bad_request

MAX_NAME_CHARACTERS = 256

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecord:
    """One registered adapter; `alias` is its name for people.

    `loaded` is unset for one registered with preload false until its first request.
    """

    name: str
    alias: str
    src: str
    preload: bool = True
    pin: bool = False
    loaded: bool = True


class AdapterRegistry:
    """Registered adapters by name; one change at a time.

    At most `max_pinned` adapters may be pinned. A registration that fails leaves nothing listed.
    """

    def __init__(self, backend: EngineBackend, *, enabled: bool, max_pinned: int) -> None:
        self._backend = backend
        self._max_pinned = max_pinned
        self._records: dict[str, AdapterRecord] = {}
        self._changing = asyncio.Lock()
        self.enabled = enabled

    @property
    def records(self) -> Mapping[str, AdapterRecord]:
        """Every registered adapter by name, oldest first."""
        return self._records

    def adopt(self, folders: Iterable[tuple[str, Path]]) -> None:
        """List adapters that the engine loaded at its start."""
        for name, folder in folders:
            self._records[name] = AdapterRecord(name=name, alias=name, src=str(folder))

    async def register(self, record: AdapterRecord) -> None:
        """Make the adapter usable; raises Refusal."""
        self._check_enabled()
        check_name(record.name)
        folder = local_folder(record.src)
        async with self._changing:
            self._check_new(record)
            if not folder.is_dir():
                raise Refusal(Cause.DEPENDENCY, f"Adapter path {folder} is not a folder")
            if record.preload:
                await self._load(record.name, folder)
            self._records[record.name] = replace(record, src=str(folder), loaded=record.preload)
        log.info("Registered adapter %s from %s successfully", record.alias, folder)

    async def update(
        self, name: str, *, src: str | None, preload: bool | None, pin: bool | None
    ) -> AdapterRecord:
        """Load or pin a registered adapter; raises Refusal for what cannot be changed."""
        self._check_enabled()
        async with self._changing:
            record = self.find(name)
            if src is not None and local_folder(src) != Path(record.src):
                raise Refusal(
                    Cause.DEPENDENCY,
                    "Updating adapter path is not supported; register the new weights under "
                    "another name",
                )
            if pin is False and record.pin:
                raise Refusal(
                    Cause.DEPENDENCY,
                    f"Unpinning adapter {record.alias} is not supported; unregister it and "
                    "register it again",
                )
            if pin and not record.pin:
                self._check_pins()
            if (preload or pin) and not record.loaded:
                await self._load(name, Path(record.src))
            updated = replace(
                record,
                pin=record.pin or bool(pin),
                preload=record.preload if preload is None else preload,
                loaded=record.loaded or bool(preload or pin),
            )
            self._records[name] = updated
        return updated

    async def unregister(self, name: str) -> AdapterRecord:
        """Forget the adapter; requests that run with it finish. Raises Refusal."""
        self._check_enabled()
        async with self._changing:
            record = self.find(name)
            if record.loaded:
                try:
                    await self._backend.unload_adapter(name)
                except AdapterMissingError:
                    log.warning("adapter %s was not loaded in the engine", name)
                except EngineFailedError as error:
                    raise Refusal(Cause.ENGINE, str(error)) from error
            del self._records[name]
        log.info("Unregistered adapter %s", record.alias)
        return record

    async def ensure_loaded(self, names: Iterable[str | None]) -> None:
        """Load those of `names` that were registered without preload; raises Refusal."""
        for name in names:
            record = self._records.get(name) if name else None
            if record is None or record.loaded:
                continue
            async with self._changing:
                record = self.find(record.name)
                if not record.loaded:
                    await self._load(record.name, Path(record.src))
                    self._records[record.name] = replace(record, loaded=True)

    def find(self, name: str) -> AdapterRecord:
        """The adapter's record; raises Refusal (404) when there is none."""
        try:
            return self._records[name]
        except KeyError:
            raise Refusal(Cause.NOT_FOUND, f"Adapter {name} is not registered") from None

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise bad_request("LoRA is not enabled. Set option.enable_lora=true to use adapters.")

    def _check_new(self, record: AdapterRecord) -> None:
        if record.name in self._records:
            raise Refusal(
                Cause.CONFLICT,
                f"Adapter {record.alias} already exists. If you want to register again, please "
                "unregister it first.",
            )
        if record.pin and not record.preload:
            raise Refusal(Cause.DEPENDENCY, "Can not set preload to false and pin to true")
        if record.pin:
            self._check_pins()

    def _check_pins(self) -> None:
        pinned = sum(record.pin for record in self._records.values())
        if pinned >= self._max_pinned:
            raise Refusal(
                Cause.NO_MEMORY,
                f"No free lora slots: {pinned} adapters are pinned and max_loras/max_cpu_loras "
                f"allows {self._max_pinned}",
            )

    async def _load(self, name: str, folder: Path) -> None:
        try:
            await self._backend.load_adapter(name, folder)
        except AdapterExistsError as error:
            raise Refusal(Cause.CONFLICT, str(error)) from error
        except AdapterRefusedError as error:
            raise Refusal(Cause.DEPENDENCY, str(error)) from error
        except AdapterCapacityError as error:
            raise Refusal(Cause.NO_MEMORY, str(error)) from error
        except EngineFailedError as error:
            raise Refusal(Cause.ENGINE, str(error)) from error


def check_name(name: str) -> None:
    """Refuse a name that could not be part of a path of this API."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or "/" in name or not name.isprintable():
        raise bad_request(
            f"name is {name[:80]!r}; it must be 1 to {MAX_NAME_CHARACTERS} printable characters "
            "without a slash",
            "name",
        )


def local_folder(src: str) -> Path:
    """The folder that `src` names, as a path or a file: URL; raises Refusal for other URLs."""
    parts = urlsplit(src)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme:
        raise Refusal(
            Cause.CONFLICT,
            f"src is {src}; only local folders can be registered, download it first",
            "src",
        )
    return Path(src)
