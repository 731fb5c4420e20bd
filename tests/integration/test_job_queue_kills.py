"""After kill -9, the queue of asynchronous requests has each acknowledged request once."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.jobs.queue.request_rows import RequestRows, RowFilter
from hostelry.store.database import open_database

pytestmark = pytest.mark.integration
SUBMITTER = """
import sys
from tests.contract.jobs.test_request_queue import asked
from hostelry.jobs.queue.durable_queue import DurableQueue
from hostelry.store.database import open_database

queue, start = DurableQueue(open_database(sys.argv[1])), int(sys.argv[2])
for number in range(start, start + 1_000_000):
    queue.submit([asked(f"{number}-{part}", ttl_s=1e9) for part in range(3)])
    print(number, flush=True)
"""
ACKNOWLEDGED_BEFORE_KILL = 25


def test_acknowledged_requests_survive_kills_and_no_part_of_a_batch_does(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "jobs.db", []
    for start in (0, 1_000, 2_000):
        command = [sys.executable, "-c", SUBMITTER, str(path), str(start)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as submitter:
            assert submitter.stdout is not None
            for line in submitter.stdout:
                acknowledged.append(int(line))
                if int(line) - start == ACKNOWLEDGED_BEFORE_KILL:
                    submitter.send_signal(signal.SIGKILL)
    queue = DurableQueue(open_database(path))
    kept = [row.id for row in RequestRows(queue).page(RowFilter(limit=10_000))]
    queue.close()
    batches = {int(name.partition("-")[0]) for name in kept}
    assert set(acknowledged) <= batches
    assert len(batches - set(acknowledged)) <= 3, "one at most was under way at each kill"
    assert sorted(kept) == sorted(f"{it}-{part}" for it in batches for part in range(3))
