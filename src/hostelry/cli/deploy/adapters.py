"""The LoRA adapters of --adapters: one folder, a folder of folders, archives in S3. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hostelry.base.errors import TerminalError, UsageError
from hostelry.cli.artifacts.content import ARCHIVE_SUFFIXES
from hostelry.cli.artifacts.object_order import FoundFile
from hostelry.cli.deploy.found import Found, Origin
from hostelry.cli.deploy.names import source_name

CONFIG = "adapter_config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSource:
    """An adapter: files that are packed into an archive, or `uri`, an archive in S3."""

    name: str
    files: tuple[FoundFile, ...] = ()
    uri: str = ""
    etag: str = ""

    @property
    def num_bytes(self) -> int:
        """The size of its files."""
        return sum(it.size_bytes for it in self.files)


def adapters_in(found: Found) -> tuple[AdapterSource, ...]:
    """The adapters at a source, by name. Raises TerminalError where there is none."""
    if found.place in (Origin.PREFIX, Origin.OBJECT):
        return _archives(found)
    if CONFIG in found.names:
        return (AdapterSource(name=source_name(found.given), files=found.files),)
    folders = sorted({it.rpartition("/")[0] for it in found.names if it.endswith("/" + CONFIG)})
    named: Mapping[str, str] = {it.rpartition("/")[2]: it for it in folders}
    if len(named) < len(folders):
        raise TerminalError(f"{found.given} has two adapters of one name: {', '.join(folders)}")
    if not folders:
        shown = ", ".join(found.names[:8]) or "nothing"
        raise UsageError(
            f"--adapters {found.given} has {shown}; looked for {CONFIG}, or folders with it"
        )
    return tuple(
        AdapterSource(name=name, files=_below(found, folder)) for name, folder in named.items()
    )


def _below(found: Found, folder: str) -> tuple[FoundFile, ...]:
    prefix = folder + "/"
    return tuple(
        replace(file, name=file.name.removeprefix(prefix))
        for file in found.files
        if file.name.startswith(prefix)
    )


def _archives(found: Found) -> tuple[AdapterSource, ...]:
    if found.place is Origin.OBJECT:
        return (AdapterSource(name=source_name(found.uri), uri=found.uri, etag=found.revision),)
    archives = [it for it in found.files if it.name.endswith(ARCHIVE_SUFFIXES)]
    if not archives:
        raise UsageError(
            f"--adapters {found.given} has no .tar.gz: an adapter in S3 is an archive of its "
            f"{CONFIG} and adapter_model.safetensors"
        )
    return tuple(
        AdapterSource(name=source_name(file.name), uri=found.uri + file.name, etag=file.etag)
        for file in archives
    )
