"""``python -m tests.contract.skew.record``: keep what this version exchanges, for the next one.

Run it with each release of a minor version, and until the first one as often as you like: it writes
``recorded/MAJOR.MINOR.json``, and removes what no neighbour of this version needs any more.
"""

import base64
import json
from pathlib import Path
from typing import Any

from tests.contract.skew.exchanged import FIXED, GROWING, SAMPLES, tables_now, types_now

from hostelry import __version__
from hostelry.base.peers import are_neighbours
from hostelry.store.schema import SCHEMA_REVISION

FOLDER = Path(__file__).parent / "recorded"


def document() -> dict[str, dict[str, Any]]:
    """What this version exchanges."""
    return {
        "schema": {"revision": SCHEMA_REVISION},
        "types": types_now(),
        "tables": tables_now(GROWING, *FIXED),
        "bytes": {it.name: base64.b64encode(it.encode()).decode() for it in SAMPLES},
    }


def text(found: dict[str, dict[str, Any]]) -> str:
    """The document, a type and a table a line."""
    parts = []
    for name, members in found.items():
        lines = [f"  {json.dumps(key)}: {json.dumps(it)}" for key, it in members.items()]
        parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """Write this version's file."""
    FOLDER.mkdir(exist_ok=True)
    own = ".".join(__version__.split(".")[:2])
    for path in FOLDER.glob("*.json"):
        if not are_neighbours(path.stem, own):
            path.unlink()
    (FOLDER / f"{own}.json").write_text(text(document()))


if __name__ == "__main__":
    main()
