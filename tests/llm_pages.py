"""Writes docs/llm-options.md and docs/llm-fields.md from the tables of the LLM server.

``python -m tests.llm_pages`` writes both.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from hostelry.containers.lmi.request.field_table import ROWS, SAMPLED, Fate
from hostelry.containers.lmi.settings.option_rows import (
    LMI_OPTIONS,
    NOTHING_ASKED,
    PROPERTIES,
    OptionFate,
    Rows,
    Treatment,
)
from hostelry.containers.lmi.settings.option_table import TGI_VARIABLES
from hostelry.containers.lmi.settings.options import (
    ALIASES,
    OVERWRITING,
    PLAIN_NAMES,
    TGI_NAMES,
)
from hostelry.containers.lmi.settings.vllm_options import VLLM_OPTIONS

DOCS = Path(__file__).resolve().parents[1] / "docs"
OPTIONS_HEAD = """# Options of the LLM server

Which options of LMI, vLLM and TGI work? Write an option as `option.NAME` in
`serving.properties`, as `OPTION_NAME`, or with AWS's vLLM images as `SM_VLLM_NAME`. Write a
property by its plain name in `serving.properties`, or as `SERVING_NAME`.

```
option.max_rolling_batch_size=64
```

Each engine has a column ([which engine serves](backends.md)):

- **done**: the option has this effect.
- **passed on**: vLLM gets the value under its own name, if it has the right form.
- **must be**: this engine does not serve the model unless the option is so. If the other engine
  does it, `option.backend=auto` chooses that one. Otherwise the server does not start.
- **no effect**: accepted, since it cannot change an answer. The log says why.

All other options of LMI, vLLM 0.32 and TGI have no effect with either engine. Unknown options give
a warning with similar names. With `option.strict_options=true` the server does not start. The
values false, none, null, auto, `{}`, `[]` and the values in brackets give neither warning nor
error, except that false is passed on. [lmi.md](lmi.md) explains the most used options.

No option has been passed on to vLLM on a GPU yet.

This page is generated: `python -m tests.llm_pages`.
"""
COLUMNS = ("option", "with Hostelry's engine", "with vLLM")
WORDS = {OptionFate.DONE: "", OptionFate.REFUSED: "must be "}
FIELDS_HEAD = """# Fields of the LLM server's requests

Which fields of LMI, vLLM, OpenAI and TGI work? For example `max_new_tokens` works in `parameters`:

```
{"inputs": "The sea", "parameters": {"max_new_tokens": 8}}
```

- **done**: the field has an effect, or is checked. Invalid values are refused.
- **refused**: an error names field, value and reason. Null and the values in brackets pass.
- **accepted**: the field cannot change an answer.

The second column says where the field may be: in a body with `prompt` or `messages`, at the top of
a body with `inputs`, or in its `parameters`. *Usual*: `prompt`, `messages` and `parameters`. A name
with a dot is a member of an object.

The response names unknown fields in `X-Hostelry-Ignored-Fields`. With
`option.strict_fields=true` or the header `X-Hostelry-Strict-Fields: true` they are refused. The
routes `/v1/responses`, `/v1/embeddings`, `/pooling`, `/classify`, `/score`, `/rerank`, `/tokenize`
and `/detokenize` refuse all unknown fields.

This page is generated:
`python -m tests.llm_pages`.
"""


def options_page() -> str:
    """The text of docs/llm-options.md."""
    parts = [
        OPTIONS_HEAD,
        *options_section("LMI, DJL Serving and this server", LMI_OPTIONS),
        *options_section("Properties without the prefix", PROPERTIES),
        *options_section("vLLM", VLLM_OPTIONS),
        *options_section("Variables of a TGI image", TGI_VARIABLES),
        "## Other names\n",
        table(("option", "other names"), other_names()),
    ]
    return "\n".join(parts)


def options_section(title: str, rows: Rows) -> list[str]:
    """A heading, and a table. Options with equal cells share a row."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, row in rows.items():
        if OptionFate.NO_EFFECT is row.ours.fate is row.vllm.fate:
            continue
        theirs = "the same" if row.ours == row.vllm else treatment_text(row.vllm)
        names.setdefault((treatment_text(row.ours), theirs), []).append(f"`{name}`")
    rows_shown = [(", ".join(each), *cells) for cells, each in names.items()]
    return [f"## {title}\n", table(COLUMNS, rows_shown)]


def treatment_text(treatment: Treatment) -> str:
    """The cell of one engine."""
    same = ", ".join(sorted(treatment.same - NOTHING_ASKED))
    text = f"{treatment.text} ({same})" if same else treatment.text
    if treatment.fate is OptionFate.PASSED:
        example = treatment.example.replace("|", "")
        return f"passed on: {treatment.text}, such as `{example}`"
    if treatment.fate is OptionFate.NO_EFFECT:
        return "no effect"
    return WORDS[treatment.fate] + text


def other_names() -> list[tuple[str, ...]]:
    """Options with their other names."""
    given = {
        **{f"option.{name}": f"option.{theirs}" for name, theirs in ALIASES.items()},
        **{name: f"option.{theirs}" for name, theirs in PLAIN_NAMES.items()},
        **{
            name: theirs.removeprefix("/") if theirs.startswith("/") else f"option.{theirs}"
            for name, theirs in OVERWRITING.items()
        },
        "ENABLE_CUDA_GRAPHS": "the opposite of option.enforce_eager",
        "SAGEMAKER_MAX_REQUEST_SIZE": "max_request_size",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "max_request_size, in MiB",
        **{f"{name} (TGI)": to_option(theirs) for name, theirs in TGI_NAMES.items()},
    }
    names: dict[str, list[str]] = {}
    for name, option in given.items():
        names.setdefault(option, []).append(f"`{name}`")
    return [(f"`{option}`", ", ".join(each)) for option, each in names.items()]


def to_option(variable: str) -> str:
    """The option or property of a variable."""
    name = variable.lower()
    return f"option.{name[7:]}" if name.startswith("option_") else name.removeprefix("serving_")


def fields_page() -> str:
    """The text of docs/llm-fields.md. Fields with equal cells share a row."""
    sections = [FIELDS_HEAD]
    for fate in Fate:
        names: dict[tuple[str, str], list[str]] = {}
        for row in ROWS:
            if row.fate is fate:
                neutral = ", ".join(f"`{json.dumps(value)}`" for value in row.neutral)
                reason = f"{row.reason} ({neutral})" if neutral else row.reason
                places = "usual" if row.places == SAMPLED else ", ".join(row.places)
                cells = (places, reason)
                names.setdefault(cells, []).append(f"`{row.name}`")
        rows = [(", ".join(each), *cells) for cells, each in names.items()]
        heads = ("field", "where", "effect or reason")
        sections += [f"## {fate.value.capitalize()}\n", table(heads, rows)]
    return "\n".join(sections)


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


PAGES = {"llm-options.md": options_page, "llm-fields.md": fields_page}

if __name__ == "__main__":
    for page, text_of in PAGES.items():
        (DOCS / page).write_text(text_of(), encoding="utf-8")
