"""The unambiguous part of YAML 1.2. Pure.

Duplicate keys, anchors, aliases (a few lines of them make gigabytes), tags and deep nesting are
rejected. ``on``, ``yes`` and dates are text.
"""

import re
from typing import Any

import yaml

from hostelry.base.errors import HostelryError

MAX_CHARACTERS = 256 * 1024
MAX_DEPTH = 32

_TAG = "tag:yaml.org,2002:"
_SCALARS = (
    ("null", r"~|null|", ["~", "n", ""]),
    ("bool", r"true|false", list("tf")),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,17})", list("-+0123456789")),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]{1,3})?",
     list("-+0123456789.")),
)  # fmt: skip


class YamlError(HostelryError):
    """The text is not valid YAML of this kind. The message has the line."""


class StrictLoader(yaml.SafeLoader):
    """PyYAML's loader for this part of YAML."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own attribute

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """The node of the next event. Raises MarkedYAMLError if it is rejected."""
        event = self.peek_event()  # type: ignore[no-untyped-call]
        mark = event.start_mark
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise yaml.MarkedYAMLError(problem="anchors and aliases are refused", problem_mark=mark)
        if getattr(event, "tag", None) is not None:
            raise yaml.MarkedYAMLError(problem="tags are refused", problem_mark=mark)
        if self._depth >= MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"it is nested more than {MAX_DEPTH} deep", problem_mark=mark
            )
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """The mapping of a node, with texts as keys."""
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(
                    problem="a key must be a name", problem_mark=key.start_mark
                )
            if key.value in keys:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value[:80]} is given twice", problem_mark=key.start_mark
                )
            keys.add(key.value)
        # A key is its text: cases of a switch may be `true` and 1, which are equal in Python.
        return {key.value: self.construct_object(value, deep) for key, value in node.value}


for _name, _pattern, _first in _SCALARS:
    StrictLoader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), _first)


def read_yaml(text: str) -> Any:
    """The value of `text`. Raises YamlError."""
    if len(text) > MAX_CHARACTERS:
        raise YamlError(f"it has {len(text)} characters; at most {MAX_CHARACTERS}")
    try:
        return yaml.load(text, Loader=StrictLoader)
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark else ""
        raise YamlError(f"{error.problem}{line}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise YamlError(" ".join(str(error).split())[:300]) from None
