"""``python -m tests.contract.skew.record`` records this version's formats for the next version.

Run it for each minor release. Before the first release it may be run at any time. It writes
``recorded/MAJOR.MINOR.json``, and removes files that no neighbour of this version needs.
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
    """The formats that this version exchanges."""
    return {
        "schema": {"revision": SCHEMA_REVISION},
        "types": types_now(),
        "tables": tables_now(GROWING, *FIXED),
        "bytes": {it.name: base64.b64encode(it.encode()).decode() for it in SAMPLES},
    }


def text(found: dict[str, dict[str, Any]]) -> str:
    """The document, with one line per type and table."""
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
