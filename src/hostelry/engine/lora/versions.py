"""Names of adapters, their versions, and the requests that hold each version.

A request holds one version from its start to its end. A new version of a name applies to later
requests, and the old version lives until its last request has ended.
"""

import itertools
from collections.abc import Sequence

import msgspec

from hostelry.engine.lora.errors import AdapterError


class AdapterVersion(msgspec.Struct, frozen=True):
    """A name's adapter at the time of a look-up. Later versions have greater numbers."""

    name: str
    number: int
    content_id: str


class _Use(msgspec.Struct):
    """The number of requests that hold a version, and whether it is its name's current one."""

    num_requests: int = 0
    is_current: bool = True


class Versions:
    """Names, versions, and the contents that any of them needs."""

    def __init__(self) -> None:
        self._current: dict[str, AdapterVersion] = {}
        self._uses: dict[AdapterVersion, _Use] = {}
        self._contents: dict[str, int] = {}  # live versions of each content
        self._numbers = itertools.count(1)

    @property
    def current(self) -> Sequence[AdapterVersion]:
        """The current versions of all names, in order of registration."""
        return tuple(self._current.values())

    def get(self, name: str) -> AdapterVersion | None:
        """The current version of the name. None for an unknown name."""
        return self._current.get(name)

    def is_used(self, content_id: str) -> bool:
        """Whether a live version has that content."""
        return content_id in self._contents

    def num_requests(self, version: AdapterVersion) -> int:
        """Requests that hold the version."""
        use = self._uses.get(version)
        return use.num_requests if use else 0

    def register(self, name: str, content_id: str) -> tuple[AdapterVersion, str | None]:
        """Give `name` a new current version of that content.

        Returns the version, and the content that became unused, if any. No effect if the current
        version has that content already. Raises AdapterError for an empty name.
        """
        if not name:
            raise AdapterError("the adapter's name is empty")
        old = self._current.get(name)
        if old is not None and old.content_id == content_id:
            return old, None
        version = AdapterVersion(name, next(self._numbers), content_id)
        self._contents[content_id] = self._contents.get(content_id, 0) + 1
        self._uses[version] = _Use()
        unused = self._replace(old) if old is not None else None
        self._current[name] = version
        return version, unused

    def retire(self, name: str) -> tuple[AdapterVersion, str | None] | None:
        """Remove a name.

        Returns its current version, and the content that became unused, if any. None for an unknown
        name. Requests that hold the version keep it.
        """
        version = self._current.pop(name, None)
        if version is None:
            return None
        return version, self._replace(version)

    def acquire(self, name: str) -> AdapterVersion | None:
        """Hold the name's current version for one request."""
        version = self._current.get(name)
        if version is not None:
            self._uses[version].num_requests += 1
        return version

    def release(self, version: AdapterVersion) -> str | None:
        """Release a hold. Returns the content that became unused, if any."""
        use = self._uses[version]
        assert use.num_requests > 0, f"{version} is released more often than held"
        use.num_requests -= 1
        return self._end_if_unused(version, use)

    def _replace(self, version: AdapterVersion) -> str | None:
        use = self._uses[version]
        use.is_current = False
        return self._end_if_unused(version, use)

    def _end_if_unused(self, version: AdapterVersion, use: _Use) -> str | None:
        if use.is_current or use.num_requests:
            return None
        del self._uses[version]
        content_id = version.content_id
        self._contents[content_id] -= 1
        if self._contents[content_id]:
            return None
        del self._contents[content_id]
        return content_id
