"""One option's row: what the server makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

# Values that ask for nothing, whatever the option.
NOTHING_ASKED = frozenset({"", "false", "none", "null", "auto", "{}", "[]"})


class OptionFate(Enum):
    """Treatment of an option's values."""

    DONE = "done"  # read, or checked to have a value that is done
    REFUSED = "refused"  # any value but those in `same` ends the start
    NO_EFFECT = "no effect"  # accepted with a warning: it cannot change an answer


@dataclass(frozen=True, slots=True)
class OptionRow:
    """Treatment of one option.

    `text` is what a done option does, what a refused one must be, or why one has no effect.
    `same` are the values (in lower case) that ask for what is done anyway.
    """

    fate: OptionFate
    text: str
    same: frozenset[str] = NOTHING_ASKED

    def asks_nothing(self, value: str) -> bool:
        """Whether `value` asks for what is done anyway."""
        return value.strip().lower() in self.same


Rows = Mapping[str, OptionRow]


def done(text: str) -> OptionRow:
    """A row of an option that has an effect."""
    return OptionRow(OptionFate.DONE, text)


def refused(text: str, *same: str) -> OptionRow:
    """A row of an option that must be as `text` says."""
    return OptionRow(OptionFate.REFUSED, text, NOTHING_ASKED | frozenset(same))


def without_effect(text: str, *same: str) -> OptionRow:
    """A row of an option that cannot change an answer, for the reason `text`."""
    return OptionRow(OptionFate.NO_EFFECT, text, NOTHING_ASKED | frozenset(same))


def always_on(text: str) -> OptionRow:
    """A row of a switch that has no effect, for the reason `text`, and is as if it were true."""
    return OptionRow(OptionFate.NO_EFFECT, text, NOTHING_ASKED - {"false"} | {"true"})


def each(names: str, row: OptionRow) -> dict[str, OptionRow]:
    """`row` for each of the names."""
    return dict.fromkeys(names.split(), row)
