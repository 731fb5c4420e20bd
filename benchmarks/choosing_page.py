"""The generated part of docs/choosing.md, from the numbers in docs/choosing/measured.json. PURE."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.choosing_claims import (
    AXES,
    STATEMENTS,
    STORIES,
    Numbers,
    Verdict,
    judge_pick,
)
from benchmarks.choosing_mixes import PATTERNS, index_rows

BEGIN = "<!-- Written by `python -m benchmarks.choosing` from choosing/measured.json. -->"
END = "<!-- End of the written part. -->"
AGREES = {True: "agrees", False: "differs", None: "not measured"}
Row = Mapping[str, Any]


def replace_part(page: str, part: str) -> str:
    """The page with another generated part. Raises ValueError if the page lacks its marks."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (found and ended):
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n\n{part}\n{END}{after}"


def read_part(page: str) -> str:
    """The generated part of a page."""
    return page.partition(BEGIN)[2].partition(END)[0].strip("\n")


def build_part(measured: Mapping[str, Any]) -> str:
    """The part in Markdown."""
    numbers = Numbers(rows=index_rows(measured["options"]), mixes=measured["mixes"])
    return "\n".join(
        [
            *_list_machine(measured),
            *_list_measured(measured["options"]),
            *_list_stories(numbers),
            *_list_patterns(numbers),
            *_list_statements(numbers),
        ]
    ).rstrip("\n")


def _list_machine(measured: Mapping[str, Any]) -> Iterator[str]:
    machine = measured["hardware"]
    loads = f"{measured['load_before']:.1f} before and {measured['load_after']:.1f} after"
    yield (
        f"{measured['measured_at'][:10]}, {machine['cpu']}, {machine['cores']} cores shared by "
        f"client, platform and models."
    )
    yield f"Load average of the machine: {loads} (setting {measured['setting']})."
    yield ""


def _list_measured(rows: Sequence[Row]) -> Iterator[str]:
    yield "### Measured on one machine"
    yield ""
    heading = (
        "option", "models", "created until answered", "call p50, p99", "best rate", "cold call",
        "memory",
    )  # fmt: skip
    yield from list_table(heading, [_list_cells(it) for it in rows])
    yield ""
    for row in rows:
        if "first token ms" in row:
            yield (
                f"The demo LLM with an adapter: {show_ms(row['first token ms'])} until the first "
                f"token, {show_ms(row['token ms'])} for each further token.\nFour streams at once "
                f"take {row['slowdown of 4']:.2f} times as long as one."
            )
            yield ""


def _list_cells(row: Row) -> list[str]:
    times = [row.get("call ms"), row.get("call p99 ms")]
    is_called = all(it is not None for it in times)
    rate = row.get("calls a second")
    memory = row.get("memory MB")
    return [
        row["option"],
        str(row["models"]),
        f"{row['first answer s']:.1f} s",
        ", ".join(show_ms(it) for it in times if it is not None) if is_called else "",
        "" if rate is None else f"{rate:.0f}/s",
        show_ms(row["cold call ms"]) if "cold call ms" in row else "",
        "" if memory is None else f"{memory:.0f} MB",
    ]


def _list_stories(numbers: Numbers) -> Iterator[str]:
    yield "### Three stories"
    yield ""
    rows = []
    for story in STORIES:
        for mix in story.mixes:
            verdict = judge_pick(numbers, mix, (story.option,))
            kind = "measured" if numbers.mixes[mix]["is_measured"] else "assumed"
            rows.append([story.text, story.option, link(mix), kind, show_verdict(verdict)])
    yield from list_table(("story", "AWS chooses", "mix", "times", "result"), rows)
    yield ""
    for story in STORIES:
        for mix in story.mixes:
            yield from _list_mix(numbers, mix)


def _list_patterns(numbers: Numbers) -> Iterator[str]:
    yield "### Patterns of traffic"
    yield ""
    for mix in PATTERNS:
        yield from _list_mix(numbers, mix)


def _list_mix(numbers: Numbers, mix: str) -> Iterator[str]:
    advice = numbers.mixes[mix]
    num = advice["models"]
    pick = "no option" if advice["pick"] is None else advice["pick"]
    yield f"{link(mix)}, {num:,} model{'' if num == 1 else 's'}: `hostelry fit` picks {pick}."
    options = advice["options"]
    if len(options) > 1:
        yield advice["sensitivity"]
    yield ""
    rows = [
        [name, f"{it['shortfall']:.3f}", *(show_axis(it, axis) for axis in AXES)]
        for name, it in options.items()
    ]
    if rows:
        yield from list_table(("option", "shortfall", *AXES), rows)
        yield ""
    absent = {**advice["refused"], **advice["not_ranked"]}
    yield from (f"- {name} is left out: {join_clauses(why)}" for name, why in absent.items())
    if absent:
        yield ""
    if rows:
        yield f"![{mix}](choosing/{mix}.svg)"
        yield ""


def _list_statements(numbers: Numbers) -> Iterator[str]:
    yield "### Statements"
    yield ""
    judged = [(it, it.rule(numbers)) for it in STATEMENTS]
    counts = {it: sum(one.agrees is it for _, one in judged) for it in AGREES}
    yield (
        f"Of {len(judged)} statements, the numbers agree with {counts[True]}, differ from "
        f"{counts[False]}, and show nothing about {counts[None]}."
    )
    yield ""
    rows = [[it.option, it.about, it.text, show_verdict(found)] for it, found in judged]
    yield from list_table(("option", "about", "AWS's statement", "result"), rows)


def show_verdict(verdict: Verdict) -> str:
    """A verdict as a sentence."""
    if verdict.agrees:
        return f"agrees: {verdict.why}"
    return join_clauses(f"{AGREES[verdict.agrees]}, because {verdict.why}")


def join_clauses(text: str) -> str:
    """A reason with several parts as prose."""
    return text.replace("; ", ", ")


def show_axis(option: Row, axis: str) -> str:
    """A score and its value."""
    score = option["scores"][axis]
    return f"{'unknown' if score is None else f'{score:.2f}'}: {option['texts'][axis]}"


def show_ms(milliseconds: float) -> str:
    """A time in a table."""
    return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds / 1000:.2f} s"


def link(mix: str) -> str:
    """A link from the page to a mix."""
    return f"[{mix}.toml](../examples/fit/{mix}.toml)"


def list_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    for line in (heading, ["---"] * len(heading), *rows):
        yield f"| {' | '.join(cell.replace('|', '/') for cell in line)} |"
