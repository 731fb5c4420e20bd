"""Names are unique: no two public classes of src have the same name."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "hostelry"
# A name that stands in more than one file, and why it does.
OF_AUTHORS = "the name that an author's model.py imports from djl_python"
SHARED: dict[str, str] = dict.fromkeys(("Output", "Sequence", "Session"), OF_AUTHORS)


def places_by_name() -> dict[str, list[str]]:
    """Where each public class of a module is defined."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(path.relative_to(SOURCE)))
    return places


def test_no_public_class_name_is_defined_twice() -> None:
    places = places_by_name()
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert len(places) > 500
    assert twice.keys() - SHARED.keys() == set(), twice


def test_every_exception_is_still_one() -> None:
    places = places_by_name()
    assert {name for name in SHARED if len(places[name]) < 2} == set()
