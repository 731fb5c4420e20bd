"""Cause of a failure: the words that the failure reasons of all resources with one trouble share.

Names, ids, sizes and instants may differ; exit codes, signals and HTTP statuses may not.
"""

import re
from collections.abc import Iterable

NOTE = "[agent] "  # prefix of the agent's lines in a copy's log
LAST_LINES = " Last log lines: "
SEE_LOG = re.compile(r" See the log stream \S+ of group \S+\.")
MARK = "#"
_KEPT_NUMBER = re.compile(r"\b(?P<word>code|signal|status|errno|HTTP)[ =:]*(?P<number>\d+)", re.I)
_RESTART = re.compile(r"It is started again (at once|in [\d.]+ s)\.")
_WORD = re.compile(r"[\w.]+")


def server_lines(log_tail: str) -> list[str]:
    """Lines of the model server itself: the agent's own lines only repeat the cause."""
    lines = (line.strip() for line in log_tail.split("\n"))
    return [line for line in lines if line and not line.startswith(NOTE.rstrip())]


def in_a_line(reason: str) -> str:
    """A failure reason with the last alone of the model server's lines, which says most."""
    text, quoted, lines = reason.partition(LAST_LINES)
    return text + quoted.replace("lines", "line") + lines.strip().rpartition("\n")[2].strip()


def cause_of(reason: str, names: Iterable[str] = (), log_tail: str = "") -> str:
    """The words that all reasons of one cause share; `names` are of the resource that failed.

    Of the model server's lines, in the reason or in `log_tail`, only the last one counts.
    """
    cause, _, quoted = reason.partition(LAST_LINES)
    lines = server_lines(log_tail) or quoted.removesuffix("\n").split("\n")
    cause = SEE_LOG.sub("", cause)
    text = "\n".join([cause.strip(), *(it.strip() for it in lines[-1:])])
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(@\d+)?(?![\w-])", MARK, text)
    text = _RESTART.sub("", text).strip()
    return _WORD.sub(_marked, _KEPT_NUMBER.sub(_spelled, text))


def _spelled(found: re.Match[str]) -> str:
    """A number that distinguishes causes, in letters, so that it is not marked."""
    letters = "".join(chr(ord("a") + int(it)) for it in found["number"])
    return f"{found['word']} {letters}"


def _marked(found: re.Match[str]) -> str:
    """The mark of a word with a digit, or the word; a full stop that ends a sentence stays."""
    if not any(map(str.isdecimal, found[0])):
        return found[0]
    return MARK + ("." if found[0].endswith(".") else "")
