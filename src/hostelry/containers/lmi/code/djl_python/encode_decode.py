"""A body to a value by its content type, and back."""

import csv
import io
from typing import Any

from hostelry.containers.lmi.code.djl_python.inputs import Input, parse_table
from hostelry.containers.lmi.code.djl_python.outputs import Output

COLUMNS = ("question", "context", "inputs")


def decode_csv(inputs: Input, require_headers: bool = True) -> Any:
    """The table, or its column `inputs` if it has one. Raises ValueError."""
    text = inputs.get_as_string()
    if not require_headers:
        return [[float(cell) for cell in row] for row in csv.reader(parse_table(text))]
    first = text.partition("\n")[0].lower()
    if not any(column in first for column in COLUMNS):
        raise ValueError(f"a CSV body needs a header row with one of {', '.join(COLUMNS)}")
    rows = inputs.get_as_csv()
    if rows and "inputs" in rows[0]:
        return {"inputs": [row["inputs"] for row in rows]}
    return {"inputs": rows}


def decode(
    inputs: Input,
    content_type: str | None,
    key: str | None = None,
    require_csv_headers: bool = True,
) -> Any:
    """The body's value."""
    kind = content_type or ""
    if not kind:
        return inputs.get_as_json(key) if inputs.get_as_bytes(key) else {"inputs": ""}
    if "application/json" in kind:
        return inputs.get_as_json(key)
    if "text/csv" in kind:
        return decode_csv(inputs, require_headers=require_csv_headers)
    if "text/plain" in kind:
        return {"inputs": [inputs.get_as_string(key)]}
    if kind.startswith("image/"):
        return {"inputs": inputs.get_as_image(key)}
    if "tensor/npz" in kind:
        return {"inputs": inputs.get_as_npz(key)}
    if kind == "application/x-www-form-urlencoded":
        return {"inputs": inputs.get_as_string(key)}
    return {"inputs": inputs.get_as_bytes(key)}


def encode_csv(content: Any) -> str:
    """Rows as a table with a header."""
    rows = list(content)
    written = io.StringIO()
    writer = csv.DictWriter(written, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


def encode(
    outputs: Output, prediction: Any, content_type: str | None, key: str | None = None
) -> None:
    """Add `prediction` to `outputs` in that content type: JSON, CSV or numpy's format."""
    kind = content_type or "application/json"
    if "text/csv" in kind:
        outputs.add_as_string(encode_csv(prediction), key=key)
        outputs.add_property("Content-Type", "text/csv")
    elif "tensor/npz" in kind:
        outputs.add_as_npz(prediction, key=key)
        outputs.add_property("Content-Type", "tensor/npz")
    else:
        outputs.add_as_json(prediction, key=key)
        outputs.add_property("Content-Type", "application/json")
