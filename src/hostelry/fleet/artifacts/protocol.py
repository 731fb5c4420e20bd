"""Protocol of artifact stores."""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from hostelry.base.errors import RetryableError, TerminalError
from hostelry.domain.model import ArtifactSource


class ArtifactError(TerminalError):
    """The artifact cannot be used, and a retry cannot help. Names the bucket and the key."""


class ArtifactCacheFullError(ArtifactError):
    """The artifact cache, or the disk, lacks `lacking_bytes`, or an unknown number if that is 1."""

    def __init__(self, text: str, lacking_bytes: int = 1) -> None:
        super().__init__(text)
        self.lacking_bytes = lacking_bytes


class ArtifactUnavailableError(RetryableError):
    """The object store did not answer, or not in full. The same fetch may succeed later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A request for the files of `source`, for `holder` (a path of names, the copy's id first).

    `note` takes progress lines, from any thread. `cancelled` ends the work between two blocks. A
    prefix without objects is an error, unless it `may_be_empty`. `token` replaces the operator's
    token of the hub. `role` is the role whose policies must allow the read. Empty: any object of
    the account may be read.
    """

    source: ArtifactSource
    holder: str
    note: Callable[[str], None]
    may_be_empty: bool = False
    token: str | None = field(default=None, repr=False)
    role: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)


class Artifacts(Protocol):
    """Local folders with artifacts in them, shared by every copy of the instance."""

    async def fetch(self, want: Fetch) -> Path:
        """The folder with the artifact's files, kept until `holder` releases it.

        Raises ArtifactError, or ArtifactUnavailableError if it may succeed later.
        """
        ...

    def retain(self, copy_ids: Collection[str]) -> None:
        """Release every holder except these copies and the holders below them."""
        ...

    def release(self, holder: str) -> None:
        """Release everything that `holder` and the holders below it hold, if anything."""
        ...


class RoleArtifacts:
    """Artifacts that are read in a role."""

    def __init__(self, within: Artifacts, role: str) -> None:
        self._within = within
        self._role = role

    async def fetch(self, want: Fetch) -> Path:
        """The folder with the artifact's files. Raises the store's errors."""
        return await self._within.fetch(replace(want, role=self._role))

    def retain(self, copy_ids: Collection[str]) -> None:
        """Release every holder except these copies and the holders below them."""
        self._within.retain(copy_ids)

    def release(self, holder: str) -> None:
        """Release everything that `holder` and the holders below it hold."""
        self._within.release(holder)
