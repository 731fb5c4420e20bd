"""Outages of a disk: reason, remedy and retries."""

import errno
from pathlib import Path

from tests.cases import case, cases

from hostelry.metrics.persistence.durable import RETRY_S, continue_outage

FOLDER = Path("/home/metrics")
T = 1_700_000_000.0


@cases(
    "error, reason, remedy",
    case(
        "a full disk",
        OSError(errno.ENOSPC, "No space left on device"),
        "No space left on device",
        "make room on its disk",
    ),
    case(
        "the folder itself is not named twice",
        OSError(errno.EACCES, "Permission denied", str(FOLDER)),
        "Permission denied",
        "let this user read and write it",
    ),
    case(
        "a file of the folder is named",
        OSError(errno.EISDIR, "Is a directory", "/home/metrics/snapshot-0000000001.bin"),
        "/home/metrics/snapshot-0000000001.bin: Is a directory",
        "move away the folder that stands in its place",
    ),
    case(
        "a broken disk",
        OSError(errno.EIO, "Input/output error"),
        "Input/output error",
        "look at its disk and at the system's log",
    ),
    case("no number", OSError("odd"), "odd", "look at its disk and at the system's log"),
)
def test_an_outage_has_a_reason_and_a_remedy(error: OSError, reason: str, remedy: str) -> None:
    found = continue_outage(error, FOLDER, T)
    assert (found.reason, found.remedy) == (reason, remedy)


@cases(
    "after_s, is_due",
    case("not at once", 0.0, False),
    case("not within some seconds", RETRY_S - 0.1, False),
    case("after some seconds", RETRY_S, True),
    case("where the clock was set back", -0.1, True),
    case("where the clock was set back an hour", -3600.0, True),
    case("where the clock was set an hour forward", 3600.0, True),
)
def test_the_disk_is_tried_again(after_s: float, is_due: bool) -> None:
    first = continue_outage(OSError(errno.ENOSPC, "full"), FOLDER, T - 100)
    again = continue_outage(OSError(errno.ENOSPC, "full"), FOLDER, T, first)
    assert (again.began_at, again.tried_at) == (T - 100, T)
    assert again.is_due_again(T + after_s) is is_due
