"""docs/compatibility.md: operations and fields that are served, made from the code.

``python -m hostelry.api.compatibility docs/compatibility.md`` writes the page.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from botocore.model import ListShape, MapShape, Shape, StructureShape

from hostelry.api.operations import OPERATIONS, REFUSED
from hostelry.aws.models import operation_model, service_operations

# The gateway serves these itself, without an entry in OPERATIONS.
RUNTIME_OPERATIONS = (
    "InvokeEndpoint",
    "InvokeEndpointAsync",
    "InvokeEndpointWithResponseStream",
)
# Missing operations of model hosting are listed by name.
HOSTING = re.compile(
    r"[A-Z][a-z]+(Endpoint(?!Policy)|Inference(Component|Experiment|Recommendation)"
    r"|TransformJob|Models?$)"
)
# So many others are named, too, instead of "every other operation".
FEW = 3
SERVICES = tuple(dict.fromkeys(("sagemaker", "sagemaker-runtime", *(of for of, _ in OPERATIONS))))
FATES = ("refused", "echoed", "ignored")
TITLE = "# Compatibility\n"
INTRODUCTION = f"""{TITLE}
This page is generated, and tests hold it to the code. To write it again:
`python -m hostelry.api.compatibility docs/compatibility.md`. Shapes are those of
the installed botocore.

An operation that is not served answers `UnknownOperationException` with its name, a call of a
service that is not listed with the service's name.

## Operations
"""
FIELDS = """
## Fields

Of the operations that are served. *Refused*: an error that names the field. *Echoed*: stored and
described, without effect. *Ignored*: dropped, since it changes no answer. A field within a refused,
echoed or ignored one shares its fate. Every other field is acted on.
"""
Notes = Mapping[str, Mapping[str, str]]


@cache
def notes_of(service: str) -> Notes:
    """Reasons by fate and by ``SHAPE.MEMBER``; see fields.toml."""
    text = files("hostelry.api").joinpath("fields.toml").read_text(encoding="utf-8")
    found: Notes = tomllib.loads(text).get(service, {})
    return {fate: found.get(fate, {}) for fate in FATES}


def page() -> str:
    """The whole page, as markdown."""
    parts = [INTRODUCTION, operations_table(), refused_table(), FIELDS]
    parts += [fields_section(service) for service in SERVICES if service != "sagemaker-runtime"]
    return "\n".join(parts)


def operations_table() -> str:
    """One row a service: operations that are served, and others."""
    rows = [service_row(service, sorted(service_operations(service))) for service in SERVICES]
    return "\n".join(["| service | served | not served |", "| --- | --- | --- |", *rows, ""])


def service_row(service: str, names: Sequence[str]) -> str:
    """The table's row of one service whose model has the operations `names`."""
    done = served(service)
    missing = [name for name in names if name not in done and HOSTING.match(name)]
    missing += [name for of, name in REFUSED if of == service and name not in missing]
    others = [name for name in names if name not in done and name not in missing]
    if len(others) <= FEW:
        missing += others
    else:
        missing.append("every other operation")
    return f"| {service} | {', '.join(sorted(done))} | {', '.join(missing)} |"


def refused_table() -> str:
    """The operations that are not served for a reason of their own."""
    rows = [f"| {service}:{name} | {reason} |" for (service, name), reason in REFUSED.items()]
    return "\n".join(["| operation | why not |", "| --- | --- |", *rows])


def served(service: str) -> set[str]:
    """The service's operations that are served."""
    if service == "sagemaker-runtime":
        return set(RUNTIME_OPERATIONS)
    return {name for of, name in OPERATIONS if of == service}


def fields_section(service: str) -> str:
    """Fields of one service: those that are acted on by operation, then the others with reasons."""
    notes = notes_of(service)
    rows = [
        f"| {name} | {', '.join(acted_on(service, name, notes)) or 'none'} |"
        for name in sorted(served(service))
    ]
    lines = [f"\n### {service}\n", "| operation | acts on |", "| --- | --- |", *rows]
    noted = [
        f"| {field} | {fate} | {reason} |"
        for fate in FATES
        for field, reason in sorted(notes[fate].items())
    ]
    if noted:
        lines += ["", "| field | fate | why |", "| --- | --- | --- |", *noted]
    return "\n".join(lines)


def acted_on(service: str, operation: str, notes: Notes) -> list[str]:
    """Paths of the operation's fields, without those that have a note and what is within them."""
    shape = operation_model(service, operation).input_shape
    noted = {field for fate in FATES for field in notes[fate]}
    return [] if shape is None else list(paths(shape, "", noted, ()))


def paths(shape: Shape, path: str, noted: set[str], above: Sequence[str]) -> Iterator[str]:
    """Paths of the leaves of `shape` that have no note; a shape within itself is not entered."""
    if isinstance(shape, ListShape | MapShape):
        inner = shape.member if isinstance(shape, ListShape) else shape.value
        yield from paths(inner, f"{path}[]", noted, above)
    elif not isinstance(shape, StructureShape) or shape.name in above or not shape.members:
        yield path
    else:
        for name, member in shape.members.items():
            if f"{shape.name}.{name}" not in noted:
                inner_path = f"{path}.{name}" if path else name
                yield from paths(member, inner_path, noted, (*above, shape.name))


def main(path: Path) -> None:
    """Write the page to the file at `path`; SystemExit where that is another file."""
    if path.exists() and not path.read_text(encoding="utf-8").startswith(TITLE):
        raise SystemExit(f"{path} is another file: the page is docs/compatibility.md")
    path.write_text(page() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
