"""The README's compatibility table, made from the operations that the code implements.

``python -m hostelry.api.compatibility README.md`` rewrites the section between the two markers.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import botocore.session

from hostelry.api.operations import OPERATIONS

BEGIN = "<!-- compatibility:begin -->"
END = "<!-- compatibility:end -->"
# The gateway serves these itself, without an entry in OPERATIONS.
RUNTIME_OPERATIONS = ("InvokeEndpoint", "InvokeEndpointWithResponseStream")
# Missing operations of model hosting are listed by name.
HOSTING = re.compile(
    r"[A-Z][a-z]+(Endpoint(?!Policy)|Inference(Component|Experiment|Recommendation)"
    r"|TransformJob|Models?$)"
)
# So many others are named, too, instead of "every other operation".
FEW = 3
SERVICES = tuple(dict.fromkeys(("sagemaker", "sagemaker-runtime", *(of for of, _ in OPERATIONS))))


def compatibility_table() -> str:
    """A markdown table with one row a service: operations that are implemented, and others."""
    session = botocore.session.get_session()
    rows = [
        service_row(service, session.get_service_model(service).operation_names)
        for service in SERVICES
    ]
    return "\n".join(["| service | implemented | not yet |", "| --- | --- | --- |", *rows])


def service_row(service: str, names: Sequence[str]) -> str:
    """The table's row of one service whose model has the operations `names`."""
    done = implemented(service)
    missing = [name for name in names if name not in done and HOSTING.match(name)]
    others = [name for name in names if name not in done and name not in missing]
    if done and len(others) <= FEW:
        missing += others
    elif others:
        missing.append("every other operation" if done else "every operation")
    return f"| {service} | {', '.join(sorted(done)) or 'none'} | {', '.join(missing)} |"


def implemented(service: str) -> set[str]:
    """The service's operations that are served."""
    if service == "sagemaker-runtime":
        return set(RUNTIME_OPERATIONS)
    return {name for of, name in OPERATIONS if of == service}


def with_table(readme: str) -> str:
    """`readme` with the section between the markers replaced; ValueError where they are missing."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the text has no section between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{compatibility_table()}\n{END}{after}"


def main(path: Path) -> None:
    """Rewrite the section in the file at `path`."""
    path.write_text(with_table(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
