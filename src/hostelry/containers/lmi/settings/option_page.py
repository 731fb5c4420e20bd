"""docs/llm-options.md: every option and what the server makes of it, made from the tables.

``python -m hostelry.containers.lmi.settings.option_page docs/llm-options.md`` writes the page.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from hostelry.containers.lmi.settings.lmi_options import LMI_OPTIONS, PROPERTIES
from hostelry.containers.lmi.settings.option_row import NOTHING_ASKED, OptionFate, Rows
from hostelry.containers.lmi.settings.options import ALIASES, OVERWRITING, PLAIN_NAMES
from hostelry.containers.lmi.settings.tgi import NAMES
from hostelry.containers.lmi.settings.tgi_options import TGI_VARIABLES
from hostelry.containers.lmi.settings.vllm_options import VLLM_OPTIONS

PAGE = "llm-options.md"
OPENING = """# Options of the LLM server

Which options of LMI, vLLM and TGI work? Write an option as `option.NAME` in
`serving.properties`, as `OPTION_NAME`, or with AWS's vLLM images as `SM_VLLM_NAME`. Write a
property by its plain name in `serving.properties`, or as `SERVING_NAME`.

```
option.max_rolling_batch_size=64
```

- **done**: the option has an effect.
- **refused**: the server does not start unless the option is as its row says.
- **without effect**: accepted with a warning, since it cannot change an answer.

The values false, none, null, auto, `{}`, `[]` and the values in brackets give neither warning nor
error. Unknown options give a warning with similar names. With
`option.strict_options=true` the server does not start. [lmi.md](lmi.md) explains the most used
options.

This page is generated:
`python -m hostelry.containers.lmi.settings.option_page docs/llm-options.md`.
"""
FATES = (OptionFate.DONE, OptionFate.REFUSED, OptionFate.NO_EFFECT)
TITLES: Mapping[OptionFate, str] = {
    OptionFate.DONE: "Done",
    OptionFate.REFUSED: "Refused",
    OptionFate.NO_EFFECT: "Without effect",
}


def page() -> str:
    """The page's text."""
    parts = [
        OPENING,
        *section("LMI, DJL Serving and this server", LMI_OPTIONS),
        *section("Properties without the prefix", PROPERTIES),
        *section("vLLM", VLLM_OPTIONS),
        *section("Variables of a TGI image", TGI_VARIABLES),
        "## Other names\n",
        table(("name", "counts as"), other_names()),
    ]
    return "\n".join(parts)


def section(title: str, rows: Rows) -> list[str]:
    """A heading, and a table of each fate."""
    parts = [f"## {title}\n"]
    for fate in FATES:
        named = grouped({name: row for name, row in rows.items() if row.fate is fate})
        if named:
            parts += [f"### {title}: {TITLES[fate].lower()}\n", table(HEADS[fate], named)]
    return parts


HEADS: Mapping[OptionFate, tuple[str, ...]] = {
    OptionFate.DONE: ("option", "effect"),
    OptionFate.REFUSED: ("option", "must be"),
    OptionFate.NO_EFFECT: ("option", "why it cannot change an answer"),
}


def grouped(rows: Rows) -> list[tuple[str, ...]]:
    """Cells of the rows. Options with equal texts share a row."""
    names: dict[str, list[str]] = {}
    for name, row in rows.items():
        same = ", ".join(sorted(row.same - NOTHING_ASKED))
        text = f"{row.text} ({same})" if same else row.text
        names.setdefault(text, []).append(f"`{name}`")
    return [(", ".join(each), text) for text, each in names.items()]


def other_names() -> list[tuple[str, ...]]:
    """Names that count as an option of another name."""
    given = {
        **{f"option.{name}": f"option.{theirs}" for name, theirs in ALIASES.items()},
        **{name: f"option.{theirs}" for name, theirs in PLAIN_NAMES.items()},
        **{
            name: theirs.removeprefix("/") if theirs.startswith("/") else f"option.{theirs}"
            for name, theirs in OVERWRITING.items()
        },
        "ENABLE_CUDA_GRAPHS": "the opposite of option.enforce_eager",
        "SAGEMAKER_MAX_REQUEST_SIZE": "max_request_size, before all others",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "max_request_size, in MiB",
        **{f"{name} (TGI image)": theirs for name, theirs in NAMES.items()},
    }
    return [(f"`{name}`", f"`{theirs}`") for name, theirs in given.items()]


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def main() -> None:
    """Write the page to the path that is given."""
    path = Path(sys.argv[1])
    if path.name != PAGE:
        raise SystemExit(f"{path} is another file: the page is docs/{PAGE}")
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
