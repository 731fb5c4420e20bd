"""Outages of a disk: reason, remedy and retries."""

import errno
from pathlib import Path

import pytest

from hostelry.metrics.persistence.durable import RETRY_S, continue_outage

FOLDER = Path("/home/metrics")
T = 1_700_000_000.0


@pytest.mark.parametrize(
    ("error", "reason", "remedy"),
    [
        pytest.param(
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device",
            "make room on its disk",
            id="a full disk",
        ),
        pytest.param(
            OSError(errno.EACCES, "Permission denied", str(FOLDER)),
            "Permission denied",
            "let this user read and write it",
            id="the folder itself is not named twice",
        ),
        pytest.param(
            OSError(errno.EISDIR, "Is a directory", "/home/metrics/snapshot-0000000001.bin"),
            "/home/metrics/snapshot-0000000001.bin: Is a directory",
            "move away the folder that stands in its place",
            id="a file of the folder is named",
        ),
        pytest.param(
            OSError(errno.EIO, "Input/output error"),
            "Input/output error",
            "look at its disk and at the system's log",
            id="a broken disk",
        ),
        pytest.param(
            OSError("odd"), "odd", "look at its disk and at the system's log", id="no number"
        ),
    ],
)
def test_an_outage_has_a_reason_and_a_remedy(error: OSError, reason: str, remedy: str) -> None:
    found = continue_outage(error, FOLDER, T)
    assert (found.reason, found.remedy) == (reason, remedy)


@pytest.mark.parametrize(
    ("after_s", "is_due"),
    [
        pytest.param(0.0, False, id="not at once"),
        pytest.param(RETRY_S - 0.1, False, id="not within some seconds"),
        pytest.param(RETRY_S, True, id="after some seconds"),
        pytest.param(-0.1, True, id="where the clock was set back"),
        pytest.param(-3600.0, True, id="where the clock was set back an hour"),
        pytest.param(3600.0, True, id="where the clock was set an hour forward"),
    ],
)
def test_the_disk_is_tried_again(after_s: float, is_due: bool) -> None:
    first = continue_outage(OSError(errno.ENOSPC, "full"), FOLDER, T - 100)
    again = continue_outage(OSError(errno.ENOSPC, "full"), FOLDER, T, first)
    assert (again.began_at, again.tried_at) == (T - 100, T)
    assert again.is_due_again(T + after_s) is is_due
