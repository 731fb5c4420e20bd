"""Proves that Python's regular expressions match a pattern in linear time.

The matcher tries every way to read a text with a pattern. Its time is linear if the number of ways
to read the beginning of a text is bounded. The proof examines the automaton whose states are the
pattern's characters. The number is unbounded exactly if a loop contains the same edge twice, or if
some text leads from a state p to p, from p to another state q, and from q to q (Weber and Seidl,
"On the degree of ambiguity of finite automata", 1991).
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from itertools import product
from typing import Any

# Parts of `re`. The first parses a pattern, the second compiles the parsed pattern.
PARSER: Any = import_module("re._parser")
COMPILER: Any = import_module("re._compiler")
MAX_COPIES = 64
NEWLINE = 1 << ord("\n")
READABLE = (1 << 127) - 1
# Together they contain a character of every class that patterns name.
TEXTS: Sequence[str] = [
    *map(chr, range(256)),
    *"\u0661\u2028\u3000\u20ac\ud7ff\udc9b\ue000\ufffd\uffff\U0001f49b",
]
BYTES = [bytes([value]) for value in range(256)]


class UnknownPartError(Exception):
    """The pattern has a part that the proof does not support, such as a back reference."""


@dataclass(frozen=True)
class Part:
    """A part of a pattern: its first and last states, and the number of ways to match no text."""

    first: tuple[int, ...] = ()
    last: tuple[int, ...] = ()
    empty: int = 0


@dataclass
class Automaton:
    """The states of a pattern with the characters that each accepts, and the edges."""

    tree: Any
    empty_checks: int  # the number of ways in which `$` and other checks match no text
    characters: list[int] = field(default_factory=list)
    edges: Counter[tuple[int, int]] = field(default_factory=Counter)
    skipping: int | None = None  # the state in which a search has not begun to match

    def whole(self, *, is_anchored: bool) -> Part:
        """Build the whole pattern. A search begins with a repeat of any character."""
        check = str(self.tree[0][1]) if len(self.tree) and str(self.tree[0][0]) == "AT" else ""
        of_lines = check == "AT_BEGINNING" and self.tree.state.flags & PARSER.SRE_FLAG_MULTILINE
        if is_anchored or (check.startswith("AT_BEGINNING") and not of_lines):
            return self._sequence(self.tree)
        skipped = self._looped(self._state((1 << len(TEXTS)) - 1))
        self.skipping = skipped.first[0]
        if of_lines:
            skipped = self._joined([skipped, self._state(NEWLINE)])
        return self._joined([_optional(skipped), self._sequence(self.tree)])

    def _sequence(self, nodes: Iterable[tuple[Any, Any]]) -> Part:
        return self._joined(map(self._node, nodes))

    def _node(self, node: tuple[Any, Any]) -> Part:
        name, value = str(node[0]), node[1]
        match name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._state(_characters(self.tree.state, node))
            case "AT":
                return Part(empty=self.empty_checks)
            case "ASSERT" | "ASSERT_NOT":
                ahead = self._sequence(value[1]).first if value[0] > 0 else ()
                return Part(ahead, (), self.empty_checks)
            case "ATOMIC_GROUP":
                return self._sequence(value)
            case "SUBPATTERN" if not value[1]:
                return self._sequence(value[3])
            case "BRANCH":
                return _either([self._sequence(it) for it in value[1]])
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeated(*value)
        raise UnknownPartError(name)

    def _repeated(self, least: int, most: int, body: Any) -> Part:
        """Build a repeat. A repeat of more than `least` times counts as unlimited."""
        copies = [self._sequence(body) for _ in range(max(1, min(least, MAX_COPIES)))]
        if most > max(1, least) or least > MAX_COPIES:
            copies[-1] = self._looped(copies[-1])
        return self._joined(copies) if least else _optional(copies[0])

    def _state(self, characters: int) -> Part:
        at = (len(self.characters),)
        self.characters.append(characters)
        return Part(at, at)

    def _looped(self, part: Part) -> Part:
        self.edges.update(product(part.last, part.first))
        return part

    def _joined(self, parts: Iterable[Part]) -> Part:
        whole = Part(empty=1)
        for part in parts:
            self.edges.update(product(whole.last, part.first))
            first = whole.first + part.first * whole.empty
            whole = Part(first, part.last + whole.last * part.empty, whole.empty * part.empty)
        return whole


def _optional(part: Part) -> Part:
    return Part(part.first, part.last, part.empty + 1)


def _either(parts: Sequence[Part]) -> Part:
    first = tuple(at for it in parts for at in it.first)
    last = tuple(at for it in parts for at in it.last)
    return Part(first, last, sum(it.empty for it in parts))


def _characters(state: Any, node: tuple[Any, Any]) -> int:
    """The samples that a node matches, as bits."""
    takes = COMPILER.compile(PARSER.SubPattern(state, [node])).fullmatch
    samples: Sequence[Any] = BYTES if isinstance(state.str, bytes) else TEXTS
    return sum(1 << at for at, it in enumerate(samples) if takes(it))


@cache
def fault_of(pattern: str | bytes, flags: int = 0, *, is_anchored: bool = False) -> str:
    """Why matching may take more than linear time. Empty if it is proven to be linear."""
    tree = PARSER.parse(pattern, flags)
    automaton, checked = Automaton(tree, 1), Automaton(tree, 0)
    try:
        automaton.whole(is_anchored=is_anchored)
        ends = set(checked.whole(is_anchored=is_anchored).last)
    except UnknownPartError as error:
        return f"the proof does not know {error}"
    return next(_faults(automaton, ends), "")


def _faults(automaton: Automaton, ends: set[int]) -> Iterator[str]:
    after: dict[int, list[int]] = {at: [] for at in range(len(automaton.characters))}
    for one, other in automaton.edges:
        after[one].append(other)
    reached = {at: _closure(after, at) for at in after}
    loops = [at for at in after if at in reached[at]]
    for (one, other), count in automaton.edges.items():
        if count > 1 and one in reached[other]:
            yield "a repeat in a repeat takes the same text"
    sure = _sure(after, ends)
    for p, q in product(loops, loops):
        # From a sure state a search always finds a match, so it does not start again before it.
        if p == q or q not in reached[p] or (p == automaton.skipping and q in sure):
            continue
        text = _shared_text(automaton.characters, after, reached, p, q)
        if text:
            yield f"two repeats take {text!r}, again and again"


def _closure(after: dict[int, list[int]], start: int) -> set[int]:
    """The states that can be reached over at least one edge."""
    found: set[int] = set()
    waiting = list(after[start])
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += after[at]
    return found


def _sure(after: dict[int, list[int]], ends: set[int]) -> set[int]:
    """The states from which the pattern may end at any time."""
    while len(kept := {at for at in ends if ends.issuperset(after[at])}) < len(ends):
        ends = kept
    return ends


def _shared_text(
    characters: Sequence[int],
    after: dict[int, list[int]],
    reached: dict[int, set[int]],
    p: int,
    q: int,
) -> str:
    """A text that leads from p to p, from p to q, and from q to q. Empty if none exists."""
    texts = {(p, p, q): ""}
    waiting = deque(texts)
    while waiting:
        now = waiting.popleft()
        for step in product(after[now[0]], after[now[1]], after[now[2]]):
            x, y, z = step
            shared = characters[x] & characters[y] & characters[z]
            if not shared or p not in reached[x] or q not in reached[y] or q not in reached[z]:
                continue
            text = texts[now] + TEXTS[(shared & READABLE or shared).bit_length() - 1]
            if step == (p, q, q):
                return text
            if step not in texts:
                texts[step] = text
                waiting.append(step)
    return ""
