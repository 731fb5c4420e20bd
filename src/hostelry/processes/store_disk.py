"""An embedded object store that a full disk broke: it is to be started again once there is room.

SeaweedFS's index of names keeps the error of a write to its journal, and repeats it for every later
write, also when there is room. Only a new process writes again.
"""

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)
JOURNAL, NO_SPACE = b"filerldb2/", b"no space left on device"
ROOM_BYTES = 4 * 1024 * 1024
MOST_READ_BYTES = 1024 * 1024


class StoreDisk:
    """What the store's log reports of the disk that `folder` lies on.

    `output` gets what the store prints; `restarted` must be called at each start of it.
    """

    def __init__(self, folder: Path, output: Path) -> None:
        self._folder = folder
        self._output = output
        self.restarted()

    def restarted(self) -> None:
        """Forget what an earlier process reported."""
        self._is_broken = False
        self._read_bytes = self._output_bytes()

    def needs_restart(self) -> bool:
        """Whether the store takes no write any more, though there is room for it."""
        if not self._is_broken and self._reports_full():
            self._is_broken = True
            log.warning("the disk is full: the object store is started again when there is room")
        return self._is_broken and self._has_room()

    def _has_room(self) -> bool:
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return False
        return found.f_bavail * found.f_frsize >= ROOM_BYTES

    def _reports_full(self) -> bool:
        """Whether new lines of the output do."""
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
