"""A copy's model files, which are fetched, linked into the copy's folder, and read ahead."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.base.proc import sizes
from hostelry.domain.copy import CopySpec
from hostelry.domain.model import ArtifactSource
from hostelry.fleet.agent.lifecycle import CopyPolicy, backoff_s, describe_download_failure
from hostelry.fleet.artifacts.hub import is_hub
from hostelry.fleet.artifacts.protocol import Artifacts, Fetch
from hostelry.fleet.artifacts.sources import container_sources, find_hub_model, find_hub_token

NOTHING: Mapping[str, ArtifactSource] = MappingProxyType({})


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Fetches the artifacts that `spec` names. `model` is the path that the model server sees.

    `note` takes progress lines from any thread. `report_wait` takes the cause of each retry.
    """

    spec: CopySpec
    model: Path
    artifacts: Artifacts
    policy: CopyPolicy
    note: Callable[[str], None]
    report_wait: Callable[[str], None]

    async def fetch(self, hub: Mapping[str, ArtifactSource] = NOTHING) -> Mapping[str, str]:
        """Link `model` to the files. Returns local folders by the variables that name an artifact.

        `hub` has the variables for a model of the hub, unless that is a folder of the model. Raises
        TerminalError in the form of a FailureReason.
        """
        model, named = container_sources(self.spec.container)
        wanted = {**named, **hub}
        timeout_s = self.spec.download_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                # A model that the server gets by its id may come with an empty prefix.
                folder = await self._fetch_one(model, may_be_empty=True) if model else None
                self._link(folder)
                if hub and self._has_folder(find_hub_model(self.spec.container) or ""):
                    wanted = dict(named)
                substitutes = {
                    name: str(await self._fetch_one(source)) for name, source in wanted.items()
                }
        except TimeoutError as error:
            uris = ", ".join(it.uri for it in dict.fromkeys((model, *wanted.values())) if it)
            raise TerminalError(
                describe_download_failure(
                    self.spec, uris, f"It was not downloaded within {timeout_s:g} s."
                )
            ) from error
        return substitutes

    def _has_folder(self, name: str) -> bool:
        """Whether the model, or the only folder of its archive, has a folder of this name."""
        return any((it / name).is_dir() for it in (self.model, *self.model.iterdir()))

    async def _fetch_one(self, source: ArtifactSource, *, may_be_empty: bool = False) -> Path:
        """The artifact's folder. Retries while the object store is unavailable."""
        failures = 0
        while True:
            want = Fetch(
                source=source,
                holder=f"{self.spec.id}/model",
                note=self.note,
                may_be_empty=may_be_empty,
                token=find_hub_token(self.spec.container) if is_hub(source) else None,
            )
            try:
                return await self.artifacts.fetch(want)
            except RetryableError as error:
                failures += 1
                self.note(f"{error}; trying again")
                self.report_wait(str(error))
                await asyncio.sleep(min(10.0, backoff_s(failures, self.policy)))
            except TerminalError as error:
                raise TerminalError(
                    describe_download_failure(self.spec, source.uri, str(error))
                ) from error

    def _link(self, folder: Path | None) -> None:
        if self.model.is_symlink():
            self.model.unlink()
        if folder is None:
            self.model.mkdir(exist_ok=True)
        else:
            self.model.symlink_to(folder.resolve(), target_is_directory=True)


MIN_FILE_BYTES = 1 << 20  # a hint for a smaller file costs more than it saves
MEMORY_SHARE = 0.5  # of available memory. More would evict other processes' pages


def read_ahead(folder: Path, budget_bytes: int) -> int:
    """Hint the kernel to read the large files below `folder`. Returns the bytes hinted.

    Stops at `budget_bytes`. Skips files that cannot be opened, which the copy itself will report.
    """
    asked = 0
    for path, size_bytes in _large_files(folder):
        if asked + size_bytes > budget_bytes:
            break
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(descriptor, 0, size_bytes, os.POSIX_FADV_WILLNEED)
                asked += size_bytes
            finally:
                os.close(descriptor)
    return asked


def read_model_ahead(folder: Path) -> int:
    """`read_ahead` of a copy's model, within a share of this machine's available memory."""
    available_bytes = sizes("meminfo").get(b"MemAvailable", 0)
    return read_ahead(folder, int(available_bytes * MEMORY_SHARE))


def _large_files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Regular files of at least MIN_FILE_BYTES, and their sizes, in the order of their paths."""
    for path in sorted(folder.resolve().rglob("*")):
        with contextlib.suppress(OSError):
            size_bytes = path.stat().st_size
            if path.is_file() and size_bytes >= MIN_FILE_BYTES:
                yield path, size_bytes
