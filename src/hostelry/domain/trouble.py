"""Texts about an endpoint that serves only in part, and about the cause of a failure. Pure."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

# An endpoint in one of these statuses should answer requests.
PROMISING = frozenset({"InService", "Updating", "SystemUpdating", "RollingBack"})
FAILED = "Failed"


class ServedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A component, or a variant that serves a model, with its ready and desired copies.

    An adapter has no `desired`, because it uses the copies of its base.
    """

    status: str
    ready: int
    desired: int | None


def summarize_serving(status: str, parts: Iterable[ServedPart]) -> dict[str, Any]:
    """Sum up the copies of an endpoint's parts: `ready`, `desired`, `tone` and `trouble`.

    The tone is "bad" if nothing serves, and "warn" if only a part serves. The trouble explains the
    tone. Both are missing if everything serves, or if the endpoint need not answer in its status.
    Components in creation or deletion are not counted.
    """
    given = list(parts)
    every = [it for it in given if it.status in PROMISING or it.status == FAILED]
    with_copies = [it for it in every if it.desired is not None]
    ready = sum(it.ready for it in with_copies)
    desired = sum(it.desired or 0 for it in with_copies)
    failed = sum(1 for it in every if it.status == FAILED)
    causes = []
    if ready < desired:
        causes.append(f"{ready} of {desired} {'copy' if desired == 1 else 'copies'} ready")
    if failed:
        causes.append(f"{failed} of {len(given)} components failed")
    tone = trouble = None
    if causes and status in PROMISING:
        is_silent = (desired > 0 and ready == 0) or all(it.status == FAILED for it in every)
        tone = "bad" if is_silent else "warn"
        trouble = f"serves {'nothing' if is_silent else 'in part'}: {', '.join(causes)}"
    return {"ready": ready, "desired": desired, "tone": tone, "trouble": trouble}


NOTE = "[agent] "  # prefix of lines that the agent writes into a copy's log
LAST_LINES = " Last log lines: "
SEE_LOG = re.compile(r" See the log stream \S+ of group \S+\.")
MARK = "#"
_KEPT_NUMBER = re.compile(r"\b(?P<word>code|signal|status|errno|HTTP)[ =:]*(?P<number>\d+)", re.I)
_RESTART = re.compile(r"It is started again (at once|in [\d.]+ s)\.")
_WORD = re.compile(r"[\w.]+")


def server_lines(log_tail: str) -> list[str]:
    """The model server's lines. The agent's lines are left out, because they repeat the cause."""
    lines = (line.strip() for line in log_tail.split("\n"))
    return [line for line in lines if line and not line.startswith(NOTE.rstrip())]


def to_one_line(reason: str) -> str:
    """Shorten a failure reason: of the model server's lines, only the last stays."""
    text, quoted, lines = reason.partition(LAST_LINES)
    return text + quoted.replace("lines", "line") + lines.strip().rpartition("\n")[2].strip()


def find_cause(reason: str, names: Iterable[str] = (), log_tail: str = "") -> str:
    """Reduce a failure reason to the words that failures with the same cause share.

    A mark replaces names, ids, sizes and times. Exit codes, signals and HTTP statuses stay.
    `names` are the names of the failed resource. Of the model server's lines, in the reason or in
    `log_tail`, only the last one is kept.
    """
    cause, _, quoted = reason.partition(LAST_LINES)
    lines = server_lines(log_tail) or quoted.removesuffix("\n").split("\n")
    cause = SEE_LOG.sub("", cause)
    text = "\n".join([cause.strip(), *(it.strip() for it in lines[-1:])])
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w-]){re.escape(name)}(@\d+)?(?![\w-])", MARK, text)
    text = _RESTART.sub("", text).strip()
    return _WORD.sub(_mark_word, _KEPT_NUMBER.sub(_spell_number, text))


def _spell_number(found: re.Match[str]) -> str:
    """Spell a number in letters, because it distinguishes causes and must not be marked."""
    letters = "".join(chr(ord("a") + int(it)) for it in found["number"])
    return f"{found['word']} {letters}"


def _mark_word(found: re.Match[str]) -> str:
    """Replace a word that has a digit by the mark. A full stop after the word stays."""
    if not any(map(str.isdecimal, found[0])):
        return found[0]
    return MARK + ("." if found[0].endswith(".") else "")
