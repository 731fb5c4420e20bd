"""Composite alarms: their rules, read and evaluated, and the suppression of their actions.

Source: PutCompositeAlarm in the CloudWatch API reference. CloudWatch User Guide, "Creating a
composite alarm" and "Suppressing composite alarm actions".
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec

from hostelry.domain.alarm import AlarmState, AlarmStatus, CompositeAlarm

MAX_CHILDREN = 100
MAX_ELEMENTS = 500
MAX_DEPTH = 100  # of parentheses and NOTs in each other

ARN = re.compile(r"arn:[^:]+:cloudwatch:[^:]*:[^:]*:alarm:(?P<name>.+)", re.DOTALL)
TOKEN = re.compile(
    r"""\s*(?:
        (?P<function>ALARM|OK|INSUFFICIENT_DATA)\s*\(\s*
            (?:"(?P<quoted>(?:[^"\\]|\\.)*)"\s*|(?P<plain>(?:[^\s"()][^"()]*)?))\)
        |(?P<word>AND|OR|NOT|TRUE|FALSE)(?![A-Za-z0-9_])
        |(?P<mark>[()])
    )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


class RuleError(ValueError):
    """A rule that cannot be read, or is too large. The message says where."""


class Constant(msgspec.Struct, frozen=True):
    """TRUE or FALSE."""

    value: bool


class InState(msgspec.Struct, frozen=True):
    """Whether the alarm of that name is in that state."""

    state: AlarmState
    name: str


class Negation(msgspec.Struct, frozen=True):
    """NOT."""

    of: "Expression"


class Junction(msgspec.Struct, frozen=True):
    """AND (`is_all`) or OR of several."""

    is_all: bool
    parts: tuple["Expression", ...]


Expression = Constant | InState | Negation | Junction


class _Token(msgspec.Struct, frozen=True):
    kind: str  # a word in capitals, a mark, STATE or END
    at: int
    leaf: InState | None = None


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Parse the expression of a rule. Raises RuleError.

    NOT binds more than AND, AND more than OR. Names may be quoted or ARNs.
    """
    tokens = list(_tokenize(text))
    _check_size(tokens)
    expression, rest = _parse_or(tokens, 0, 0)
    if tokens[rest].kind != "END":
        raise _build_error(tokens[rest])
    return expression


def list_children(expression: Expression) -> tuple[str, ...]:
    """Names of the alarms that an expression asks for, each once, in their order."""
    return tuple(dict.fromkeys(_iterate_names(expression)))


def is_true(expression: Expression, states: Mapping[str, AlarmState]) -> bool:
    """Whether the expression is true. An alarm that is not in `states` is in no state."""
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, InState):
        return states.get(expression.name) is expression.state
    if isinstance(expression, Negation):
        return not is_true(expression.of, states)
    found = (is_true(it, states) for it in expression.parts)
    return all(found) if expression.is_all else any(found)


def parse_alarm_name(name_or_arn: str) -> str:
    """The name of an alarm that was given by its name or ARN."""
    found = ARN.fullmatch(name_or_arn)
    return found["name"] if found else name_or_arn


def find_cycle(
    name: str, rule: Expression, children_of: Callable[[str], Sequence[str]]
) -> tuple[str, ...]:
    """The names on a path from `rule` back to the alarm `name`. Empty without such a path.

    `children_of` gives the children of other composite alarms, nothing for metric alarms.
    """
    ways: list[tuple[str, ...]] = [(name, it) for it in list_children(rule)]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        if way[-1] == name:
            return way
        if way[-1] not in seen:
            seen.add(way[-1])
            ways.extend((*way, it) for it in children_of(way[-1]))
    return ()


class Suppression(msgspec.Struct, frozen=True):
    """Why actions wait: ActionsSuppressedBy, and until when (None: it is not known)."""

    by: str
    until: float | None


def find_suppression(
    alarm: CompositeAlarm, suppressor: AlarmStatus | None, now: float
) -> Suppression | None:
    """The suppression of the actions of the alarm's present state. None if they may be done.

    `suppressor` is the status of the alarm's suppressor, None if it has none any more.
    """
    if alarm.suppressor is None or suppressor is None:
        return None
    if suppressor.state is AlarmState.ALARM:
        return Suppression("Alarm", None)
    waits_until = _get_wait_end(alarm.status, alarm.suppressor_wait_s, now)
    extends_until = _get_wait_end(suppressor, alarm.suppressor_extension_s, now)
    if now >= max(waits_until, extends_until):
        return None
    if waits_until >= extends_until:
        return Suppression("WaitPeriod", waits_until)
    return Suppression("ExtensionPeriod", extends_until)


def _get_wait_end(status: AlarmStatus, wait_s: float, now: float) -> float:
    """The end of a wait since the last transition. `now` if the clock was set back since."""
    return now if status.transitioned_at > now else status.transitioned_at + wait_s


def _tokenize(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = TOKEN.match(text, at)
        if found is None:
            raise RuleError(f"{text[at:].strip()[:40]!r} at character {at} cannot be read")
        at = found.end()
        yield _build_token(found)
    yield _Token("END", end)


def _build_token(found: re.Match[str]) -> _Token:
    start = found.end() - len(found.group().lstrip())
    if found["function"]:
        quoted = found["quoted"]
        name = found["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        if not name.strip():
            raise RuleError(f"the name of an alarm is missing at character {start}")
        state = AlarmState(found["function"].upper())
        return _Token("STATE", start, InState(state, parse_alarm_name(name.strip())))
    return _Token((found["word"] or found["mark"]).upper(), start)


def _check_size(tokens: Sequence[_Token]) -> None:
    names = {it.leaf.name for it in tokens if it.leaf is not None}
    if len(names) > MAX_CHILDREN:
        raise RuleError(f"it names {len(names)} alarms; at most {MAX_CHILDREN} are possible")
    elements = sum(1 for it in tokens if it.kind in ("STATE", "TRUE", "FALSE", "("))
    if elements > MAX_ELEMENTS:
        raise RuleError(f"it has {elements} elements; at most {MAX_ELEMENTS} are possible")


Read = Callable[[Sequence[_Token], int, int], tuple[Expression, int]]


def _parse_or(tokens: Sequence[_Token], at: int, depth: int) -> tuple[Expression, int]:
    return _read_joined(tokens, at, depth, "OR", _parse_and)


def _parse_and(tokens: Sequence[_Token], at: int, depth: int) -> tuple[Expression, int]:
    return _read_joined(tokens, at, depth, "AND", _parse_term)


def _read_joined(
    tokens: Sequence[_Token], at: int, depth: int, word: str, read: Read
) -> tuple[Expression, int]:
    part, at = read(tokens, at, depth)
    parts = [part]
    while tokens[at].kind == word:
        part, at = read(tokens, at + 1, depth)
        parts.append(part)
    return (parts[0] if len(parts) == 1 else Junction(word == "AND", tuple(parts))), at


def _parse_term(tokens: Sequence[_Token], at: int, depth: int) -> tuple[Expression, int]:
    token = tokens[at]
    if depth > MAX_DEPTH:
        raise RuleError(f"it is nested deeper than {MAX_DEPTH} levels")
    if token.leaf is not None:
        return token.leaf, at + 1
    if token.kind in ("TRUE", "FALSE"):
        return Constant(token.kind == "TRUE"), at + 1
    if token.kind == "NOT":
        inner, rest = _parse_term(tokens, at + 1, depth + 1)
        return Negation(inner), rest
    if token.kind != "(":
        raise _build_error(token)
    inner, rest = _parse_or(tokens, at + 1, depth + 1)
    if tokens[rest].kind != ")":
        raise _build_error(tokens[rest])
    return inner, rest + 1


def _build_error(token: _Token) -> RuleError:
    what = "the rule ends" if token.kind == "END" else f"{token.kind} comes"
    return RuleError(f"{what} at character {token.at} where something else is needed")


def _iterate_names(expression: Expression) -> Iterator[str]:
    if isinstance(expression, InState):
        yield expression.name
    elif isinstance(expression, Negation):
        yield from _iterate_names(expression.of)
    elif isinstance(expression, Junction):
        for part in expression.parts:
            yield from _iterate_names(part)
