"""Pages of Prometheus' text format, parsed strictly and put together. Pure.

A page is untrusted. Only its whole, valid sample lines are kept, and other lines are counted by
reason. Timestamps are dropped, because a sample belongs to the moment of its collection.

Source: Prometheus documentation, Exposition formats (text format 0.0.4), and relabelling of scraped
labels, `exported_NAME`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

MAX_LINE_BYTES = 16 * 1024
MAX_LABELS = 64
MAX_SERIES = 5_000
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})
PARTS = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
NUMBER = r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[Ii]nf|NaN)"
QUOTED = r'"(?:[^"\\]|\\["\\n])*+"'
SAMPLE = re.compile(
    rf"(?P<name>{NAME})(?:[ \t]*\{{(?P<labels>(?:[^\"{{}}]|{QUOTED})*+)\}}[ \t]*|[ \t]+)"
    rf"(?P<value>{NUMBER})(?:[ \t]++-?[0-9]+)?[ \t]*+"
)
LABEL = re.compile(rf"[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*+=[ \t]*+({QUOTED})[ \t]*+(?:,|\Z)")
HEAD = re.compile(rf"#[ \t]++(HELP|TYPE)[ \t]++({NAME})(?:[ \t]+([^ \t].*)?)?")
HELP_TEXT = re.compile(r"(?:[^\\]|\\[\\n])*+")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

Labels = tuple[tuple[str, str], ...]  # values as a page has them: escaped, without the quotes


class PageSample(msgspec.Struct, frozen=True):
    """One sample. `value` is the page's own text of a number."""

    name: str
    labels: Labels
    value: str


class PageFamily(msgspec.Struct, frozen=True):
    """The samples of one family. `help` is escaped, and empty if the page has no help."""

    name: str
    kind: str
    help: str
    samples: tuple[PageSample, ...]


class MetricsPage(msgspec.Struct, frozen=True):
    """What is kept of a page, and how many lines were dropped, by reason.

    "invalid" (no sample line), "reserved" (a name that is not the page's to use), "limit" (beyond
    the number of series), "type" and "repeated" (`PageJoin`).
    """

    families: tuple[PageFamily, ...] = ()
    dropped: Mapping[str, int] = msgspec.field(default_factory=dict)


def parse_page(
    page: bytes, reserved: tuple[str, ...] = (), max_series: int = MAX_SERIES
) -> MetricsPage:
    """Parse the valid samples of a page. Names that begin with one of `reserved` are dropped."""
    kinds: dict[str, str] = {}
    helps: dict[str, str] = {}
    samples: dict[str, list[PageSample]] = {}
    dropped: Counter[str] = Counter()
    num_series = 0
    rows = iter(page.split(b"\n"))
    for raw in rows:
        line = _text(raw)
        if line is None:
            dropped["invalid"] += 1
        elif line.startswith("#"):
            _note_head(line, kinds, helps, samples)
        elif line.strip(" \t"):
            sample = _sample(line)
            family = "" if sample is None else _find_family(sample, kinds)
            if sample is None or not family:
                dropped["invalid"] += 1
            elif sample.name.startswith(reserved):
                dropped["reserved"] += 1
            elif num_series >= max_series:
                dropped["limit"] = 1 + sum(1 for it in rows if it and not it.startswith(b"#"))
            else:
                num_series += 1
                samples.setdefault(family, []).append(sample)
    families = tuple(
        PageFamily(name, kinds.get(name, "untyped"), helps.get(name, ""), tuple(found))
        for name, found in samples.items()
    )
    return MetricsPage(families, dict(dropped))


def _text(raw: bytes) -> str | None:
    """Decode a line. None if it is too long, is not UTF-8 or has control characters."""
    if len(raw) > MAX_LINE_BYTES:
        return None
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if CONTROL_CHARACTERS.search(line) else line


def _note_head(
    line: str, kinds: dict[str, str], helps: dict[str, str], samples: Mapping[str, object]
) -> None:
    """Note a HELP or TYPE line: the first of each counts, a TYPE only before its samples."""
    found = HEAD.fullmatch(line)
    if found is None:
        return
    what, name, text = found[1], found[2], found[3] or ""
    if what == "TYPE" and name not in samples:
        kinds.setdefault(name, text if text in KINDS else "untyped")
    elif what == "HELP" and HELP_TEXT.fullmatch(text):
        helps.setdefault(name, text)


def _sample(line: str) -> PageSample | None:
    found = SAMPLE.fullmatch(line)
    if found is None:
        return None
    value = found["value"]
    if math.isinf(float(value)) and "nf" not in value:
        return None  # a number beyond a double, which readers refuse
    labels = _labels(found["labels"] or "")
    return None if labels is None else PageSample(found["name"], labels, value)


def _labels(text: str) -> Labels | None:
    """Parse the pairs between a sample's braces. None if they are invalid or a name repeats."""
    found: dict[str, str] = {}
    text, at = text.rstrip(" \t"), 0
    while at < len(text):
        pair = LABEL.match(text, at)
        if pair is None or pair[1] in found or pair[1] == "__name__" or len(found) >= MAX_LABELS:
            return None
        found[pair[1]] = pair[2][1:-1]
        at = pair.end()
    return tuple(found.items())


def _find_family(sample: PageSample, kinds: Mapping[str, str]) -> str:
    """Return the family of a sample, or "" if the family's type has no such sample."""
    for suffix in ("_bucket", "_sum", "_count"):
        stem = sample.name.removesuffix(suffix)
        if stem != sample.name and suffix in PARTS.get(kinds.get(stem, ""), ()):
            is_whole = suffix != "_bucket" or any(name == "le" for name, _ in sample.labels)
            return stem if is_whole else ""
    kind = kinds.get(sample.name, "untyped")
    return sample.name if "" in PARTS.get(kind, ("",)) else ""


def escape_label(value: str) -> str:
    """Escape `value` as the text of a label between quotes."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def merge_labels(ours: Mapping[str, str], own: Labels) -> Labels:
    """Our labels, then the page's own labels. A label with a name of ours becomes `exported_NAME`.

    It is left out if its value equals ours. Our labels are plain text. An empty label of ours is
    not written, but still takes its name.
    """
    named = {name: escape_label(value) for name, value in ours.items() if value}
    taken = {*ours, *(name for name, _ in own)}
    for name, value in own:
        if name in ours:
            if value == escape_label(ours[name]):
                continue
            while name in taken:
                name = f"exported_{name}"
            taken.add(name)
        named[name] = value
    return tuple(named.items())


def sample_line(name: str, labels: Labels, value: str) -> str:
    """Write a sample as a line."""
    shown = ",".join(f'{label}="{text}"' for label, text in labels)
    return f"{name}{{{shown}}} {value}\n" if shown else f"{name} {value}\n"


class _Family(msgspec.Struct):
    kind: str
    help: str
    lines: list[str] = msgspec.field(default_factory=list)


class PageJoin:
    """Pages as one: each family once, of the type that the first page gave it.

    Args:
        max_bytes: the samples' lines of all pages.
    """

    def __init__(self, max_bytes: int) -> None:
        self._room_bytes = max_bytes
        self._families: dict[str, _Family] = {}
        self._owners: dict[str, tuple[str, str]] = {}  # family and type, by a sample's name

    def add(self, ours: Mapping[str, str], page: MetricsPage) -> Mapping[str, int] | None:
        """Add a page under the labels `ours`, which no other page has. None if it is too large.

        Returns the number of its lines that were dropped, by reason.
        """
        dropped = Counter(page.dropped)
        owners: dict[str, tuple[str, str]] = {}
        lines: list[tuple[PageFamily, str]] = []
        seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        for family in page.families:
            owner = (family.name, family.kind)
            names = [f"{family.name}{it}" for it in PARTS.get(family.kind, ("",))]
            if any(owners.get(it, self._owners.get(it, owner)) != owner for it in names):
                dropped["type"] += len(family.samples)
                continue
            owners.update(dict.fromkeys(names, owner))
            for sample in family.samples:
                labels = merge_labels(ours, sample.labels)
                series = (sample.name, frozenset(labels))
                if series in seen:
                    dropped["repeated"] += 1
                    continue
                seen.add(series)
                lines.append((family, sample_line(sample.name, labels, sample.value)))
        size_bytes = sum(len(line.encode()) for _, line in lines)
        if size_bytes > self._room_bytes:
            return None
        self._room_bytes -= size_bytes
        self._owners.update(owners)
        for family, line in lines:
            joined = self._families.setdefault(family.name, _Family(family.kind, family.help))
            joined.lines.append(line)
        return dropped

    def text(self, left_out: tuple[str, ...] = ()) -> str:
        """The page, without the families whose names begin with one of `left_out`."""
        return "".join(self._rows(left_out))

    def _rows(self, left_out: tuple[str, ...]) -> Iterator[str]:
        for name, family in self._families.items():
            if name.startswith(left_out):
                continue
            if family.help:
                yield f"# HELP {name} {family.help}\n"
            yield f"# TYPE {name} {family.kind}\n"
            yield from family.lines
