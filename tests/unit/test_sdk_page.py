"""docs/sdks.md says of each operation whether it is served."""

import re
from pathlib import Path

from hostelry.api.operations import OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "sdks.md"
ROW = re.compile(r"\| ([a-z0-9-]+) \| ([A-Z][\w, ]*) \| ?([\w, ]*)\|$")
# Not of the control plane.
ELSEWHERE = ("s3", "sagemaker-runtime")


def test_what_the_page_of_the_sdks_calls_served_is_served() -> None:
    rows = [match.groups() for line in PAGE.read_text().splitlines() if (match := ROW.match(line))]
    served = {(service, name) for service, names, _ in rows for name in split_names(names)}
    refused = {(service, name) for service, _, names in rows for name in split_names(names)}
    assert len(served | refused) > 50
    assert {it for it in served - OPERATIONS.keys() if it[0] not in ELSEWHERE} == set()
    assert refused & OPERATIONS.keys() == set()


def split_names(names: str) -> list[str]:
    return names.strip().split(", ") if names.strip() else []
