"""Answers of a real platform: `shop` was scaled, `checkout` rolled back, `invoices` failed."""

import copy
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "recorded"


def recorded(name: str) -> Any:
    """A copy of a recorded answer, which tests may change."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def endpoint_of(state: dict[str, Any], name: str) -> dict[str, Any]:
    """An endpoint of the state."""
    found: dict[str, Any] = next(it for it in state["endpoints"] if it["name"] == name)
    return found


def with_copies(state: dict[str, Any], count: int, **changes: Any) -> dict[str, Any]:
    """The state with `count` more copies of `recommend` on `shop`, with these changes."""
    shop = endpoint_of(state, "shop")
    for number in range(count):
        one = copy.deepcopy(shop["copies"][0])
        shop["copies"].append({**one, "id": f"c-{number:017x}", **changes})
    return state
