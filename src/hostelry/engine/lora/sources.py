"""Sources of adapters: a local folder, or a remote URI that a fetcher handles."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from hostelry.engine.lora.errors import AdapterError


class Fetcher(Protocol):
    """A client of one kind of remote source. Called from several threads."""

    def fetch(self, uri: str, into: Path) -> None:
        """Copy the adapter's files into the empty folder `into`, at its top.

        Raises AdapterError or OSError with the reason.
        """
        ...


class LocalSource(msgspec.Struct, frozen=True):
    """A folder on this machine."""

    folder: Path

    def __str__(self) -> str:
        """The folder."""
        return str(self.folder)


class RemoteSource(msgspec.Struct, frozen=True):
    """A remote URI. The fetcher of its scheme handles it."""

    uri: str

    def __str__(self) -> str:
        """The URI."""
        return self.uri

    @property
    def scheme(self) -> str:
        """The URI's scheme, which selects the fetcher."""
        return urlsplit(self.uri).scheme


Source = LocalSource | RemoteSource


def parse_source(place: str | Path) -> Source:
    """A path, `file://` URI, or URI of another scheme, as a source. Raises AdapterError."""
    if isinstance(place, Path):
        return LocalSource(place.absolute())
    if "://" not in place:
        return LocalSource(Path(place).absolute())
    try:
        parts = urlsplit(place)
    except ValueError as error:
        raise AdapterError(f"{place!r} is no URI: {error}") from error
    if parts.scheme != "file":
        return RemoteSource(place)
    if parts.netloc not in ("", "localhost"):
        raise AdapterError(f"{place!r} names the machine {parts.netloc}; only local files are read")
    return LocalSource(Path(unquote(parts.path)))


def is_remote(place: str) -> bool:
    """Whether a path or URI is not on this machine."""
    scheme, mark, _ = place.partition("://")
    return bool(mark) and scheme != "file"


def find_fetcher(source: RemoteSource, fetchers: Mapping[str, Fetcher]) -> Fetcher:
    """The fetcher for the source's scheme. Raises AdapterError naming the known schemes."""
    fetcher = fetchers.get(source.scheme)
    if fetcher is None:
        known = ", ".join(sorted((*fetchers, "file"))) if fetchers else "file"
        raise AdapterError(f"{source.uri!r} has scheme {source.scheme!r}; known here: {known}")
    return fetcher


def check_fetched(folder: Path, *, max_bytes: int) -> None:
    """Raise AdapterError if fetched files are links or odd, or have more than `max_bytes`.

    Folders among them, such as checkpoints, are not part of an adapter.
    """
    num_bytes = 0
    for path in sorted(folder.iterdir()):
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode):
            continue
        if not stat.S_ISREG(found.st_mode):
            raise AdapterError(f"{path.name} is no regular file")
        num_bytes += found.st_size
    if num_bytes > max_bytes:
        raise AdapterError(f"the adapter's files have {num_bytes} bytes; at most {max_bytes}")
