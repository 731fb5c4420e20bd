"""The log files of copies, as agents lay them out: those that run, and those that are gone."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hostelry.domain.log_source import LogFile, LogSource
from hostelry.fleet.records import ENDED_LOGS, CopyFolder, instance_folders


class LogFiles:
    """The log files below the folder of instances. Sources that were read once are remembered."""

    def __init__(self, instances: Path) -> None:
        self._instances = instances
        self._sources: dict[Path, LogSource] = {}

    def find(self) -> list[LogFile]:
        """All log files of copies; running ones first, so that none that ends meanwhile is missed.

        Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError):
            found = [*self._running(), *self._ended()]
            known = {it.path.parent for it in found}
            self._sources = {path: it for path, it in self._sources.items() if path in known}
            return found
        return []

    def _running(self) -> Iterator[LogFile]:
        for instance in instance_folders(self._instances):
            for copy in _folders(instance.root / "copies"):
                yield from self._file(copy, is_ended=False)

    def _ended(self) -> Iterator[LogFile]:
        for copy in _folders(self._instances / ENDED_LOGS):
            yield from self._file(copy, is_ended=True)

    def _file(self, root: Path, *, is_ended: bool) -> Iterator[LogFile]:
        folder = CopyFolder(root)
        source = self._sources.get(root) or folder.load_source()
        if source is not None:
            self._sources[root] = source
            yield LogFile(source=source, path=folder.log, is_ended=is_ended)


def _folders(root: Path) -> list[Path]:
    try:
        with os.scandir(root) as entries:
            return sorted(Path(it.path) for it in entries if it.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return []
