"""Files that were found, and the objects that they become. Plain values."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file of a source: its name below the source, and what distinguishes its content.

    `path` is where it is read from, and `modified_ns` its time there; empty and 0 for what is in
    an archive or in S3.
    """

    name: str
    size_bytes: int
    path: str = ""
    modified_ns: int = 0
    etag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectOrder:
    """An object to be there: a file, or files packed into one .tar.gz.

    The key has a digest of the content: an object of that key and size is the right one. `size`
    None where only packing shows it.
    """

    key: str
    files: tuple[FoundFile, ...]
    packed: bool = False

    @property
    def size_bytes(self) -> int | None:
        """The object's size; None of a packed one."""
        return None if self.packed else self.files[0].size_bytes

    @property
    def num_bytes(self) -> int:
        """The size of its files."""
        return sum(it.size_bytes for it in self.files)
