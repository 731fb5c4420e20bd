"""A captured variant and its spool, for several tests."""

from pathlib import Path

from hostelry.dataplane.capture.spool import Spool, SpoolLimits, SpoolTarget
from hostelry.dataplane.capture.spool_file import (
    CapturedRecord,
    RecordHead,
    SpoolHead,
    read_head,
    read_records,
)
from hostelry.domain.data_capture import DataCapture
from hostelry.domain.load import LoadKey
from hostelry.domain.scope import Scope

AT = 1_700_000_000.0  # 2023-11-14 22:13:20 UTC
KEY = LoadKey(scope=Scope("111122223333", "us-west-2"), endpoint_name="e", variant_name="v")
CAPTURE = DataCapture(
    percent=100,
    uri="s3://seen/here",
    csv_types=("text/csv",),
    json_types=("application/json",),
)
TARGET = SpoolTarget(key=KEY, capture=CAPTURE)
LIMITS = SpoolLimits(total_bytes=40_000, file_bytes=4_000, min_free_bytes=0)


def record_head(**more: str) -> RecordHead:
    return RecordHead(at=AT, **more)


def spool(folder: Path, limits: SpoolLimits = LIMITS) -> Spool:
    return Spool(folder, limits)


def content(path: Path) -> tuple[SpoolHead, list[CapturedRecord]]:
    data = path.read_bytes()
    head, start = read_head(data)
    return head, list(read_records(data, start))


def all_records(folder: Path) -> list[CapturedRecord]:
    """Every record in all files, in the order in which the files were made."""
    files = sorted(folder.glob("*.records"), key=lambda it: content(it)[0].opened_at)
    return [record for path in files for record in content(path)[1]]
