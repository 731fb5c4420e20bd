import asyncio
import logging
from pathlib import Path

import pytest

from hostelry.processes.up import bound_logs


async def test_a_log_that_cannot_be_cut_ends_the_cutting_of_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.log").mkdir()  # which is larger than the limit, and cannot be cut
    log = tmp_path / "b.log"
    log.write_bytes(b"x" * 100)
    with caplog.at_level(logging.ERROR):
        bounding = asyncio.create_task(bound_logs(tmp_path, max_bytes=10, pause_s=0.0))
        for _ in range(2):
            async with asyncio.timeout(5):
                while b"log cut" not in log.read_bytes():  # noqa: ASYNC110 - a file has no signal
                    await asyncio.sleep(0)
            log.write_bytes(b"y" * 100)
        assert not bounding.done()
        bounding.cancel()
    assert [it.message for it in caplog.records] == ["bounding logs: failed; will be tried again"]
