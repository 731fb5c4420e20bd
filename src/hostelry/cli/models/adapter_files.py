"""The files of a LoRA adapter, packed as the archive that an adapter component has."""

import gzip
import hashlib
import json
import tarfile
from pathlib import Path
from typing import IO, Any

from hostelry.base.errors import TerminalError

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")  # the first one that is there
ARCHIVES = (".tar.gz", ".tgz")
MAX_CONFIG_BYTES = 1024 * 1024
MAX_MEMBERS = 10_000
BLOCK_BYTES = 1024 * 1024


def packed_adapter(source: Path, file: IO[bytes]) -> str:
    """Write the archive of an adapter's folder, or an archive as it is; its content's digest.

    The same files give the same archive. Raises TerminalError for what is no adapter.
    """
    if source.is_dir():
        check_config(source, _config_of(source))
        _pack(source, file)
    else:
        check_config(source, _config_within(source))
        try:
            with source.open("rb") as archive:
                while block := archive.read(BLOCK_BYTES):
                    file.write(block)
        except OSError as error:
            raise TerminalError(f"{source} cannot be read: {error.strerror}") from None
    file.seek(0)
    digest = hashlib.sha256()
    while block := file.read(BLOCK_BYTES):
        digest.update(block)
    file.seek(0)
    return digest.hexdigest()


def check_config(source: Path, content: bytes) -> dict[str, Any]:
    """The adapter's configuration; raises TerminalError where it is none of a LoRA adapter."""
    try:
        config = json.loads(content)
    except (ValueError, RecursionError):
        raise TerminalError(f"{CONFIG} of {source} is no JSON") from None
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise TerminalError(f"{source} is no LoRA adapter: peft_type of its {CONFIG} is {kind!r}")
    return dict(config)


def weights_of(folder: Path) -> Path:
    """The file with the adapter's weights; raises TerminalError where there is none."""
    found = next((folder / it for it in WEIGHTS if (folder / it).is_file()), None)
    if found is None:
        raise TerminalError(f"{folder} is no adapter: it has no {' nor '.join(WEIGHTS)}")
    return found


def _config_of(folder: Path) -> bytes:
    path = folder / CONFIG
    if not path.is_file():
        raise TerminalError(f"{folder} is no adapter: it has no {CONFIG}")
    weights_of(folder)
    with path.open("rb") as file:
        return file.read(MAX_CONFIG_BYTES)


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


def _pack(folder: Path, file: IO[bytes]) -> None:
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0, filename="") as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for path in (folder / CONFIG, weights_of(folder)):
            info = tarfile.TarInfo(path.name)
            with path.open("rb") as content:
                info.size, info.mode = path.stat().st_size, 0o644
                archive.addfile(info, content)
