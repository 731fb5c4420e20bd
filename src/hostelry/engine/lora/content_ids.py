"""Content ids of adapters whose files have not changed, which need no hash at each load."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from hostelry.engine.lora.config import CONFIG_NAME
from hostelry.engine.lora.weights_file import FILE_NAMES

MAX_FOLDERS = 100_000
FileMarks = tuple[tuple[str, int, int, int, int, int], ...]


def mark_files(folder: Path) -> FileMarks:
    """Values that change when a file of the adapter in `folder` is written or replaced."""
    found = []
    for name in (CONFIG_NAME, *FILE_NAMES):
        try:
            stat = (folder / name).stat()
        except OSError:
            continue
        times = (stat.st_mtime_ns, stat.st_ctime_ns)
        found.append((name, stat.st_dev, stat.st_ino, stat.st_size, *times))
    return tuple(found)


class ContentIds:
    """Content ids by the marks of the files.

    Files that are written within one tick of the file system's clock have the same marks. So an id
    is used again after two reads with the same marks found it.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[FileMarks, tuple[str, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, folder: Path, before: FileMarks, compute: Callable[[], str]) -> str:
        """The content id of `folder`, which was read since its files had the marks `before`."""
        content_id, num_reads = self._found.get(before, ("", 0))
        if mark_files(folder) != before:
            return compute()
        if num_reads < 2:
            computed = compute()
            num_reads = num_reads + 1 if computed == content_id else 1
            content_id = computed
        with self._lock:
            self._found[before] = (content_id, num_reads)
            self._found.move_to_end(before)
            if len(self._found) > MAX_FOLDERS:
                self._found.popitem(last=False)
        return content_id
