"""docs/llm-fields.md: the fields of requests and their fates, made from the table.

``python -m hostelry.containers.lmi.request.field_page docs/llm-fields.md`` writes the page.
"""

import json
import sys
from pathlib import Path

from hostelry.containers.lmi.request.field_table import ROWS, SAMPLED, Fate, FieldRow

TITLE = "# Fields of the LLM server's requests"
HEAD = f"""{TITLE}

Which fields of LMI, vLLM, OpenAI and TGI work? For example `max_new_tokens` works in `parameters`:

```
{{"inputs": "The sea", "parameters": {{"max_new_tokens": 8}}}}
```

- **done**: the field has an effect, or is checked. Invalid values are refused.
- **refused**: an error names field, value and reason. Null and the values in brackets pass.
- **accepted**: the field cannot change an answer.

The second column says where the field may be: in a body with `prompt` or `messages`, at the top of
a body with `inputs`, or in its `parameters`. *Usual*: `prompt`, `messages` and `parameters`. The
third column says who has it: O OpenAI, V vLLM, L LMI, T TGI, H transformers' `generate`. A name
with a dot is a member of an object.

The response names unknown fields in `X-Hostelry-Ignored-Fields`. With
`option.strict_fields=true` or the header `X-Hostelry-Strict-Fields: true` they are refused. The
routes `/v1/responses`, `/v1/embeddings`, `/pooling`, `/classify`, `/score`, `/rerank`, `/tokenize`
and `/detokenize` refuse all unknown fields.

This page is generated:
`python -m hostelry.containers.lmi.request.field_page docs/llm-fields.md`.
"""


COLUMNS = ("| field | where | who | |", "| --- | --- | --- | --- |")


def page() -> str:
    """The page's text."""
    sections = [HEAD]
    for fate in Fate:
        head = f"## {fate.value.capitalize()}\n"
        sections.append("\n".join([head, *COLUMNS, *lines(fate)]) + "\n")
    return "\n".join(sections)


def lines(fate: Fate) -> list[str]:
    """Table lines of the fields with `fate`. Fields with equal cells share a line."""
    names: dict[tuple[str, str, str], list[str]] = {}
    for row in ROWS:
        if row.fate is fate:
            places = "usual" if row.places == SAMPLED else ", ".join(row.places)
            cells = (places, row.known_by, explanation(row))
            names.setdefault(cells, []).append(f"`{row.name}`")
    return [f"| {', '.join(each)} | {' | '.join(cells)} |" for cells, each in names.items()]


def explanation(row: FieldRow) -> str:
    """The row's reason, with the values that pass."""
    neutral = ", ".join(f"`{json.dumps(value)}`" for value in row.neutral)
    return f"{row.reason} ({neutral})" if neutral else row.reason


def main(path: Path) -> None:
    """Write the page to the file at `path`; SystemExit where that is another file."""
    if path.exists() and not path.read_text(encoding="utf-8").startswith(TITLE):
        raise SystemExit(f"{path} is another file: the page is docs/llm-fields.md")
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
