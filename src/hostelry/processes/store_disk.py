"""Detects an embedded object store that a full disk broke, and that needs a restart.

After a failed write to its journal, SeaweedFS's index of names fails every later write with the
same error, also when the disk has room again. Only a new process writes again.
"""

import logging
import os
from pathlib import Path

LOG = logging.getLogger(__name__)
JOURNAL, NO_SPACE = b"filerldb2/", b"no space left on device"
ROOM_BYTES = 4 * 1024 * 1024
MOST_READ_BYTES = 1024 * 1024


class StoreDisk:
    """Reports of a full disk in the store's log. `folder` is on the store's disk.

    The store prints to `output`. Call `forget_reports` at each start of the store.
    """

    def __init__(self, folder: Path, output: Path) -> None:
        self._folder = folder
        self._output = output
        self.forget_reports()

    def forget_reports(self) -> None:
        """Forget the reports of an earlier process."""
        self._is_broken = False
        self._read_bytes = self._output_bytes()

    def needs_restart(self) -> bool:
        """Whether the store refuses all writes although the disk has room."""
        if not self._is_broken and self._reports_full():
            self._is_broken = True
            LOG.warning("the disk is full: the object store is started again when there is room")
        return self._is_broken and self._has_room()

    def _has_room(self) -> bool:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize >= ROOM_BYTES

    def _reports_full(self) -> bool:
        """Whether new lines of the output report a full disk."""
        size_bytes = self._output_bytes()
        begin = self._read_bytes if self._read_bytes <= size_bytes else 0
        self._read_bytes = size_bytes
        if begin == size_bytes:
            return False
        try:
            with self._output.open("rb") as file:
                file.seek(max(begin, size_bytes - MOST_READ_BYTES))
                lines = file.read(MOST_READ_BYTES).split(b"\n")
                return any(NO_SPACE in line.partition(JOURNAL)[2] for line in lines)
        except OSError:
            return False

    def _output_bytes(self) -> int:
        try:
            return self._output.stat().st_size
        except OSError:
            return 0
