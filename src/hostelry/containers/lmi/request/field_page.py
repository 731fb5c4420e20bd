"""docs/llm-fields.md: the fields of requests and their fates, made from the table.

``python -m hostelry.containers.lmi.request.field_page docs/llm-fields.md`` writes the page.
"""

import json
import sys
from pathlib import Path

from hostelry.containers.lmi.request.field_table import ROWS, Fate, FieldRow

TITLE = "# Fields of the LLM server's requests"
HEAD = f"""{TITLE}

This page is generated, and tests hold it to the code. To write it again:
`python -m hostelry.containers.lmi.request.field_page docs/llm-fields.md`.

Where a field may be: in a body with `prompt` or `messages`, at the top of one with `inputs`, or in
its `parameters`. Who knows it: O OpenAI, V vLLM, L LMI, T TGI, H transformers' `generate`. A name
with a dot is a member of an object.

- **done**: it has an effect, or is checked. A value of the wrong type or out of range is refused.
- **refused**: an error names field, value and reason. The values in brackets, and null, ask for
  what is done anyway and pass.
- **accepted**: it cannot change an answer.

A field that is not listed is refused, with names close to it, where the server has
`option.strict_fields=true` or the request the header `X-Hostelry-Strict-Fields: true`. Otherwise
the response names it in `X-Hostelry-Ignored-Fields`, and the log once.

The other routes (`/v1/responses`, `/v1/embeddings`, `/pooling`, `/classify`, `/score`, `/rerank`,
`/tokenize`, `/detokenize`) refuse every field that is not theirs; the error lists those that are.
"""


COLUMNS = ("| field | where | who | |", "| --- | --- | --- | --- |")


def page() -> str:
    """The page's text."""
    sections = [HEAD]
    for fate in Fate:
        rows = [line(row) for row in ROWS if row.fate is fate]
        head = f"## {fate.value.capitalize()}\n"
        sections.append("\n".join([head, *COLUMNS, *rows]) + "\n")
    return "\n".join(sections)


def line(row: FieldRow) -> str:
    """The table line of a row."""
    neutral = ", ".join(f"`{json.dumps(value)}`" for value in row.neutral)
    reason = f"{row.reason} ({neutral})" if neutral else row.reason
    return f"| `{row.name}` | {', '.join(row.places)} | {row.known_by} | {reason} |"


def main(path: Path) -> None:
    """Write the page to the file at `path`; SystemExit where that is another file."""
    if path.exists() and not path.read_text(encoding="utf-8").startswith(TITLE):
        raise SystemExit(f"{path} is another file: the page is docs/llm-fields.md")
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
