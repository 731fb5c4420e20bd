"""docs/sdks.md says of each operation whether it is served."""

import re
from pathlib import Path

from hostelry.api.operations import OPERATIONS

PAGE = Path(__file__).parents[2] / "docs" / "sdks.md"
ROW = re.compile(r"\| ([a-z0-9-]+) \| ([A-Z]\w+) \|.*\| (served|refused) \| [^|]+ \|")
# Not of the control plane.
ELSEWHERE = ("s3", "sagemaker-runtime")


def test_what_the_page_of_the_sdks_calls_served_is_served() -> None:
    rows = [match.groups() for line in PAGE.read_text().splitlines() if (match := ROW.match(line))]
    assert len(rows) > 50
    served = {(service, name) for service, name, here in rows if here == "served"}
    missing = {it for it in served - OPERATIONS.keys() if it[0] not in ELSEWHERE}
    assert missing == set()
    refused = {(service, name) for service, name, here in rows if here == "refused"}
    assert refused & OPERATIONS.keys() == set()
