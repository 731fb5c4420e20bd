"""Reading of a model repository from an archive's folder."""

import itertools
import os
import re
from collections.abc import Sequence
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.containers.triton.model_folder import CONFIG, ModelFolder, may_have_end
from hostelry.containers.triton.text_format import (
    Message,
    TextFormatError,
    parse_message,
    text_of,
)

MAX_CONFIG_BYTES = 256 << 10
VERSION = re.compile(r"[1-9][0-9]{0,17}")
MAX_PYTHON_FILES = 100


def read_repository(folder: Path) -> list[ModelFolder]:
    """The models of a repository, by name. Raises TerminalError where it cannot be read."""
    try:
        names = sorted(it.name for it in os.scandir(folder) if it.is_dir())
        return [read_model(folder / it, it) for it in names if not it.startswith(".")]
    except OSError as error:
        raise TerminalError(f"the model's files cannot be read: {error}") from error


def read_model(folder: Path, name: str) -> ModelFolder:
    """One model's folder. Raises OSError."""
    config, fault = read_config(folder / CONFIG)
    entries = list(os.scandir(folder))
    versions = [it.name for it in entries if VERSION.fullmatch(it.name) and it.is_dir()]
    return ModelFolder(
        name=name,
        config=config,
        config_fault=fault,
        files=frozenset(it.name for it in entries),
        versions={it: frozenset(os.listdir(folder / it)) for it in versions},
        has_end=may_have_end(python_texts(folder)),
    )


def python_texts(folder: Path) -> list[str]:
    """The Python files below a folder; none where they are too many or too large to be read."""
    files = list(itertools.islice(folder.rglob("*.py"), MAX_PYTHON_FILES + 1))
    if len(files) > MAX_PYTHON_FILES or any(it.stat().st_size > MAX_CONFIG_BYTES for it in files):
        return []
    return [it.read_text(errors="replace") for it in files]


def read_config(file: Path) -> tuple[Message | None, str]:
    """A configuration, and why it cannot be read; neither without the file."""
    try:
        with file.open("rb") as opened:
            content = opened.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            return None, f"it has more than {MAX_CONFIG_BYTES} bytes"
        return parse_message(content.decode()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, UnicodeDecodeError, TextFormatError) as error:
        return None, str(error)


def is_flat(folder: Path) -> bool:
    """Whether the folder itself is a model, not a repository of some."""
    return (folder / CONFIG).is_file()


def flat_name(folder: Path) -> str:
    """The name of a model without a folder around it: its configuration's, else `model`."""
    config, _ = read_config(folder / CONFIG)
    name = text_of(config or {}, "name")
    return name if name and "/" not in name and not name.startswith(".") else "model"


def repository_of(
    folder: Path, scratch: Path, multi_model: bool
) -> tuple[Path, Sequence[ModelFolder]]:
    """The repository that an archive is, and its models. Raises TerminalError.

    One of many models may have no folder around it; its repository is made in `scratch`.
    """
    if not is_flat(folder):
        return folder, read_repository(folder)
    if not multi_model:
        raise TerminalError(
            f"{CONFIG} is at the archive's top; the model needs a folder around it: "
            f"MODEL/{CONFIG}, MODEL/1/..."
        )
    made = scratch / "repository"
    made.mkdir(exist_ok=True)
    link = made / flat_name(folder)
    link.unlink(missing_ok=True)
    link.symlink_to(folder)
    return made, read_repository(made)
