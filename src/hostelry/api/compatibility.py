"""Makes docs/compatibility.md, the page of the served operations and fields, from the code.

``python -m hostelry.api.compatibility docs/compatibility.md`` writes the page.
"""

import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from hostelry.api.operations import OPERATIONS, REFUSED
from hostelry.aws.models import service_operations

# The gateway serves these itself, without an entry in OPERATIONS.
RUNTIME_OPERATIONS = (
    "InvokeEndpoint",
    "InvokeEndpointAsync",
    "InvokeEndpointWithResponseStream",
)
# Missing operations of model hosting are listed by name.
HOSTING = re.compile(
    r"[A-Z][a-z]+(Endpoint|Inference(Component|Experiment|Recommendation)"
    r"|TransformJob|Models?$)"
)
# Up to this number of other operations are named. More become "every other operation".
FEW = 3
SERVICES = tuple(dict.fromkeys(("sagemaker", "sagemaker-runtime", *(of for of, _ in OPERATIONS))))
FATES = ("refused", "echoed", "ignored")
TITLE = "# Compatibility\n"
INTRODUCTION = f"""{TITLE}
Which operations and fields of AWS's services does Hostelry serve? For example DescribeEndpoint and
all its fields:

```
boto3.client("sagemaker").describe_endpoint(EndpointName="chat")
```

- An operation that is not served answers `UnknownOperationException` with its name. A service that
  is not listed is refused by its name.
- Operations and fields come from the installed botocore.
- This page is generated: `python -m hostelry.api.compatibility docs/compatibility.md`.

## Operations
"""
FIELDS = """
## Fields

**Every field of a served operation has its effect, except the fields in these tables.** *Refused*:
an error names the field. *Echoed*: stored and described, without effect. *Ignored*: dropped, since
it changes no answer. A field within a listed field shares its fate. `SHAPE.MEMBER=VALUE` is about
this value only.
"""
Notes = Mapping[str, Mapping[str, str]]


@cache
def get_notes(service: str) -> Notes:
    """Read the reasons by fate and by ``SHAPE.MEMBER`` (see fields.toml)."""
    text = files("hostelry.api").joinpath("fields.toml").read_text(encoding="utf-8")
    found: Notes = tomllib.loads(text).get(service, {})
    return {fate: found.get(fate, {}) for fate in FATES}


def page() -> str:
    """The whole page, as markdown."""
    parts = [INTRODUCTION, operations_table(), refused_table(), FIELDS]
    parts += filter(None, map(fields_section, SERVICES))
    return "\n".join(parts).rstrip()


def operations_table() -> str:
    """Build a table with a row for each service: its served operations, and its other ones."""
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
    """Build the table of operations that are not served for a stated reason."""
    by_reason: dict[str, list[str]] = {}
    for (service, name), reason in REFUSED.items():
        by_reason.setdefault(reason, []).append(f"{service}:{name}")
    rows = [f"| {', '.join(names)} | {reason} |" for reason, names in by_reason.items()]
    return "\n".join(["| operation | why not |", "| --- | --- |", *rows])


def served(service: str) -> set[str]:
    """The service's operations that are served."""
    if service == "sagemaker-runtime":
        return set(RUNTIME_OPERATIONS)
    return {name for of, name in OPERATIONS if of == service}


def fields_section(service: str) -> str:
    """A table of the service's noted fields, or an empty text. Each reason has one row."""
    notes = get_notes(service)
    rows = []
    for fate in FATES:
        by_reason: dict[str, list[str]] = {}
        for field, reason in sorted(notes[fate].items()):
            by_reason.setdefault(reason, []).append(field)
        rows += [f"| {', '.join(them)} | {fate} | {why} |" for why, them in by_reason.items()]
    if not rows:
        return ""
    return "\n".join(
        [f"### {service}\n", "| field | fate | why |", "| --- | --- | --- |", *rows, ""]
    )


def main(path: Path) -> None:
    """Write the page to `path`. Raises SystemExit if another file is there."""
    if path.exists() and not path.read_text(encoding="utf-8").startswith(TITLE):
        raise SystemExit(f"{path} is another file: the page is docs/compatibility.md")
    path.write_text(page() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
