"""The audit trail as CloudTrail's files, named as CloudTrail names them in a bucket. Pure.

Source: AWS CloudTrail user guide, "CloudTrail log file name format".
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from hostelry.audit.chain import TrailLine

MAX_RECORDS = 10_000  # of a file
HOUR_S = 3600


class ExportedFile(msgspec.Struct, kw_only=True):
    """A file of records of one account, region and hour. `path` has slashes."""

    account: str
    region: str
    hour: int
    first: int
    events: list[bytes]

    @property
    def num_records(self) -> int:
        """Number of records."""
        return len(self.events)

    @property
    def path(self) -> str:
        """Its path, which depends on its records only."""
        at = datetime.fromtimestamp(self.hour * HOUR_S, UTC)
        place = f"{self.account}/CloudTrail/{self.region}/{at:%Y/%m/%d}"
        unique = hashlib.sha256(f"{self.first}/{self.num_records}".encode()).hexdigest()[:16]
        name = f"{self.account}_CloudTrail_{self.region}_{at:%Y%m%dT%H%MZ}_{unique}.json"
        return f"AWSLogs/{place}/{name}"

    def build(self) -> bytes:
        """Its content."""
        return b'{"Records":[%b]}' % b",".join(self.events)


def split_files(lines: Iterable[TrailLine]) -> Iterator[ExportedFile]:
    """The files of records, which are oldest first."""
    open_files: dict[tuple[str, str], ExportedFile] = {}
    for line in lines:
        owner, hour = (line.account or "none", line.region or "none"), int(line.at) // HOUR_S
        file = open_files.get(owner)
        if file is not None and (file.hour != hour or file.num_records >= MAX_RECORDS):
            yield open_files.pop(owner)
            file = None
        if file is None:
            file = open_files[owner] = ExportedFile(
                account=owner[0], region=owner[1], hour=hour, first=line.number, events=[]
            )
        file.events.append(bytes(line.event))
    yield from open_files.values()
