"""Which model server an image stands for: built-in rules, and the operator's in images.toml.

    [[image]]
    pattern = "*/my-server:*"
    command = ["python", "-m", "my_server"]
    [image.probe]
    content_type = "application/json"
    body = '{"instances": [1]}'

A rule must say how readiness is proven: `probe` is a request that a working server answers with
200.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from hostelry.base.errors import TerminalError

LMI_REPOSITORY = re.compile(r"(^|[-_./])(djl-inference|djl-lmi|lmi|vllm)($|[-_./])")
LMI_COMMAND = (sys.executable, "-m", "hostelry.containers.lmi")
LMI_PROBE_BODY = (
    b'{"inputs": "Hello", "parameters": {"max_new_tokens": 1, "output_formatter": "json"}}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A real request to /invocations that proves readiness.

    The answer must be 200; where `json_field` is set it must be JSON that has this field, at the
    top or in the first element of a list.
    """

    content_type: str
    body: bytes
    json_field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRule:
    """How copies of an image are started (`argv`) and proven (`probe`)."""

    kind: str
    argv: tuple[str, ...]
    probe: Probe


LMI_RULE = ImageRule(
    kind="lmi",
    argv=LMI_COMMAND,
    probe=Probe(content_type="application/json", body=LMI_PROBE_BODY, json_field="generated_text"),
)


class _ProbeRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    content_type: str
    body: str


class _ImageRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: str
    command: tuple[str, ...]
    probe: _ProbeRow


class _ImagesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: tuple[_ImageRow, ...] = ()


class ImageRules:
    """The rule table: the operator's rules in their order, then the built-in ones."""

    def __init__(self, operator: Sequence[tuple[str, ImageRule]] = ()) -> None:
        self._operator = tuple(operator)

    @classmethod
    def load(cls, operator_file: Path | None) -> "ImageRules":
        """The built-in rules and those of `operator_file`, which need not exist.

        Raises TerminalError naming the file and the fault.
        """
        if operator_file is None or not operator_file.exists():
            return cls()
        try:
            document = tomllib.loads(operator_file.read_text(encoding="utf-8"))
            rows = msgspec.convert(document, _ImagesFile).image
            return cls([_rule(row) for row in rows])
        except (OSError, ValueError) as error:
            raise TerminalError(
                f"{operator_file}: {error}. Each [[image]] needs pattern, command (a list) and "
                "[image.probe] with content_type and body."
            ) from error

    def resolve(self, image: str) -> ImageRule | None:
        """The first rule that holds for `image`; None where there is none."""
        for pattern, rule in self._operator:
            if fnmatchcase(image, pattern):
                return rule
        return LMI_RULE if LMI_REPOSITORY.search(repository_of(image)) else None


def repository_of(image: str) -> str:
    """The image's repository: without registry, tag and digest."""
    path = image.partition("@")[0]
    first, slash, rest = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        path = rest
    return path.partition(":")[0]


def unknown_image(image: str, operator_file: Path) -> str:
    """The failure of a copy whose image has no rule, and the way out."""
    return (
        f'No rule for the image "{image}". Images of djl-inference, djl-lmi, lmi and vllm run on '
        f"the built-in LLM server; for any other, add an [[image]] with pattern, command and "
        f"probe to {operator_file}."
    )


def _rule(row: _ImageRow) -> tuple[str, ImageRule]:
    if not row.pattern.strip():
        raise ValueError("an [[image]] has an empty pattern")
    if not row.command or not row.command[0]:
        raise ValueError(f'the command of the image pattern "{row.pattern}" is empty')
    if "/" not in row.probe.content_type:
        raise ValueError(
            f'probe.content_type of the image pattern "{row.pattern}" is '
            f'"{row.probe.content_type}", which is not a media type such as application/json'
        )
    probe = Probe(content_type=row.probe.content_type, body=row.probe.body.encode())
    return row.pattern, ImageRule(kind="operator", argv=row.command, probe=probe)
