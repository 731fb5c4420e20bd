"""JSONPath as DataProcessing's filters have it.

path              selects                        result
---------------   ----------------------------   ----------------------
$                 the value                      the value
.name ['name']    a member                       its value
['a','b']         members                        an object of them
.* [*]            all members or elements        an array
[n]               an element, from the end < 0   the element
[n,m] [a:b]       elements                       an array

Missing members and indexes outside of an array are errors.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hostelry.domain.transform_rules import JSON_PATH
from hostelry.domain.transform_rules import STEP as STEP_PATTERN
from hostelry.jobs.records.errors import RecordError

STEPS = re.compile(STEP_PATTERN)
QUOTED = re.compile(r"'([^']+)'")


@dataclass(frozen=True, slots=True)
class Members:
    """Members by name; all of an object, or of an array, where there are no names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements by index, or by a range (first, end) of them."""

    indexes: tuple[int | tuple[int | None, int | None], ...]


Step = Members | Elements


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path that was parsed."""

    text: str
    steps: tuple[Step, ...]

    @property
    def is_whole(self) -> bool:
        """Whether it selects the value itself."""
        return not self.steps

    def select(self, value: Any) -> Any:
        """What the path selects in `value`; raises RecordError."""
        nodes, is_one = [value], True
        for step in self.steps:
            nodes = [found for node in nodes for found in self._found(step, node)]
            is_one = is_one and _is_one(step)
        return nodes[0] if is_one else nodes

    def _found(self, step: Step, node: Any) -> Sequence[Any]:
        if isinstance(step, Elements):
            return self._elements(step, node)
        if not step.names:
            if isinstance(node, dict):
                return list(node.values())
            if isinstance(node, list):
                return node
            raise RecordError(f"{self.text}: a {_kind(node)} has no members.")
        if not isinstance(node, dict):
            raise RecordError(f'{self.text}: a {_kind(node)} has no member "{step.names[0]}".')
        missing = [it for it in step.names if it not in node]
        if missing:
            raise RecordError(f'{self.text}: there is no member "{missing[0]}".')
        if len(step.names) == 1:
            return [node[step.names[0]]]
        return [{name: node[name] for name in step.names}]

    def _elements(self, step: Elements, node: Any) -> list[Any]:
        if not isinstance(node, list):
            raise RecordError(f"{self.text}: a {_kind(node)} has no elements.")
        found: list[Any] = []
        for index in step.indexes:
            if isinstance(index, tuple):
                for bound in index:
                    self._check(bound is None or -len(node) <= bound <= len(node), bound, node)
                found += node[slice(*index)]
            else:
                self._check(-len(node) <= index < len(node), index, node)
                found.append(node[index])
        return found

    def _check(self, is_inside: bool, index: int | None, node: list[Any]) -> None:
        if not is_inside:
            raise RecordError(f"{self.text}: index {index} is outside of {len(node)} elements.")


def parse_path(text: str) -> JsonPath:
    """The path; raises RecordError for one that is not of the subset."""
    if JSON_PATH.fullmatch(text) is None:
        raise RecordError(f'"{text}" is not a JSONPath that is read here.')
    return JsonPath(text, tuple(_step(it.group()) for it in STEPS.finditer(text, 1)))


def _step(text: str) -> Step:
    if text in (".*", "[*]"):
        return Members(())
    if text.startswith("."):
        return Members((text[1:],))
    if "'" in text:
        return Members(tuple(QUOTED.findall(text)))
    return Elements(tuple(_index(it) for it in text[1:-1].split(",")))


def _index(text: str) -> int | tuple[int | None, int | None]:
    first, colon, end = text.partition(":")
    if not colon:
        return int(text)
    return _bound(first), _bound(end)


def _bound(text: str) -> int | None:
    return int(text) if text.strip() else None


def _is_one(step: Step) -> bool:
    if isinstance(step, Members):
        return bool(step.names)
    return len(step.indexes) == 1 and not isinstance(step.indexes[0], tuple)


def _kind(value: Any) -> str:
    names = {dict: "JSON object", list: "JSON array", str: "string", bool: "boolean"}
    return names.get(type(value), "null" if value is None else "number")
