"""The files of a LoRA adapter, packed as the archive that an adapter component has."""

import json
import tarfile
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.cli.artifacts.content import packed
from hostelry.cli.artifacts.folder import allowed_roots, file_at
from hostelry.cli.artifacts.object_order import FoundFile

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")  # the first one that is there
MAX_CONFIG_BYTES = 1024 * 1024
MAX_MEMBERS = 10_000


def adapter_archive(source: Path, scratch: Path) -> FoundFile:
    """The archive of an adapter's folder, made in `scratch`, or an archive as it is.

    The same files give the same archive. Raises TerminalError for what is no adapter.
    """
    if source.is_dir():
        files = files_of(source)
        with open(files[0].path, "rb") as config:
            check_config(source, config.read(MAX_CONFIG_BYTES))
        source = packed(files, scratch / "adapter.tar.gz")
    else:
        check_config(source, _config_within(source))
    return file_at(source, source.name, str(source))


def files_of(folder: Path) -> list[FoundFile]:
    """The configuration and the weights; raises TerminalError where they are not both there."""
    found = [it for it in WEIGHTS if (folder / it).is_file()]
    for wanted, is_there in ((CONFIG, (folder / CONFIG).is_file()), (" nor ".join(WEIGHTS), found)):
        if not is_there:
            raise TerminalError(f"{folder} is no adapter: it has no {wanted}")
    roots = allowed_roots(folder)
    return [file_at(folder / it, it, str(folder), roots) for it in (CONFIG, found[0])]


def check_config(source: Path, content: bytes) -> None:
    """Raise TerminalError where an adapter's configuration is none of a LoRA adapter."""
    try:
        config = json.loads(content)
    except (ValueError, RecursionError):
        raise TerminalError(f"{CONFIG} of {source} is no JSON") from None
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise TerminalError(f"{source} is no LoRA adapter: peft_type of its {CONFIG} is {kind!r}")


def _config_within(source: Path) -> bytes:
    """The configuration inside an archive."""
    try:
        with tarfile.open(source, "r:*") as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS:
                    break
                if Path(member.name).name == CONFIG and member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None
                    return file.read(MAX_CONFIG_BYTES)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise TerminalError(f"{source} is no archive that can be read: {error}") from None
    raise TerminalError(f"{source} is no adapter: it has no {CONFIG}")
