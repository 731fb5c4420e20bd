"""Read documents: their YAML or JSON values, and the line of each value."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any

import msgspec
import yaml

from hostelry.base.errors import TerminalError
from hostelry.base.files import read_at_most
from hostelry.cli.declared.resource import DocumentError, DocumentFault, Path, SourcePlace
from hostelry.graph.strict_yaml import StrictLoader

MAX_BYTES = 16 * 1024 * 1024
SUFFIXES = (".yaml", ".yml", ".json")
TEXTS = ("Environment", "Tags")
"""Fields whose values are texts, also where they look like a number: 1.10 is not 1.1."""


class DocumentSource(msgspec.Struct, frozen=True):
    """One document: its value, the line of each path, and the folder of its local paths."""

    file: str
    folder: FilePath
    value: Any
    lines: Mapping[Path, int]

    def place(self, path: Path) -> SourcePlace:
        """The line of `path`, or of the nearest value around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return SourcePlace(self.file, self.lines.get(path, 1))


def read_sources(given: Sequence[FilePath]) -> list[DocumentSource]:
    """Read documents from files, from the files of folders in order, and from stdin for `-`.

    Raises TerminalError if a file cannot be read, DocumentError if it is invalid YAML.
    """
    sources: list[DocumentSource] = []
    for path in given:
        if str(path) == "-":
            sources += parse_sources(sys.stdin.read(), "-", FilePath.cwd())
            continue
        for file in files_at(path):
            sources += parse_sources(_text(file), str(file), file.parent)
    if not sources:
        raise TerminalError(f"{', '.join(map(str, given))}: there is no document")
    return sources


def files_at(path: FilePath) -> list[FilePath]:
    """The file itself, or the YAML and JSON files of a folder, in order of their names."""
    if not path.is_dir():
        return [path]
    found = sorted(it for it in path.iterdir() if it.suffix in SUFFIXES and it.is_file())
    if not found:
        raise TerminalError(f"{path} has no file that ends in {', '.join(SUFFIXES)}")
    return found


def _text(file: FilePath) -> str:
    try:
        data = read_at_most(file, MAX_BYTES)
        if data is None:
            raise TerminalError(f"{file} has more than {MAX_BYTES:,} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise TerminalError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TerminalError(f"{file} is not UTF-8 (byte {error.start})") from None


def parse_sources(text: str, file: str, folder: FilePath) -> list[DocumentSource]:
    """The documents in a text, without empty ones. Raises DocumentError."""
    try:
        return list(_documents(text, file, folder))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        context = f" {error.context}" if error.context else ""
        reason = f"it is not valid YAML: {error.problem}{context}"
        raise DocumentError([DocumentFault(SourcePlace(file, line), "", reason)]) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        reason = f"it is not valid YAML: {' '.join(str(error).split())[:300]}"
        raise DocumentError([DocumentFault(SourcePlace(file, 1), "", reason)]) from None


def _documents(text: str, file: str, folder: FilePath) -> Iterator[DocumentSource]:
    loader = StrictLoader(text)
    try:
        while loader.check_node():
            node: Any = loader.get_node()
            lines: dict[Path, int] = {(): node.start_mark.line + 1}
            value = _value(loader, node, (), lines)
            if value is not None:
                yield DocumentSource(file, folder, value, lines)
    finally:
        loader.dispose()


def _value(loader: Any, node: Any, path: Path, lines: dict[Path, int]) -> Any:
    if isinstance(node, yaml.MappingNode):
        loader.construct_mapping(node)  # refuses duplicate keys
        value = {}
        for key, inner in node.value:
            lines[(*path, key.value)] = key.start_mark.line + 1
            value[key.value] = _value(loader, inner, (*path, key.value), lines)
        return value
    if isinstance(node, yaml.SequenceNode):
        for number, inner in enumerate(node.value):
            lines[(*path, number)] = inner.start_mark.line + 1
        return [
            _value(loader, inner, (*path, number), lines) for number, inner in enumerate(node.value)
        ]
    if path[-2:-1] and path[-2] in TEXTS and node.tag != "tag:yaml.org,2002:null":
        return node.value
    return loader.construct_object(node)
