"""Notifications and objects as the drill reads them, from files and from a fake store."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hostelry_lab.jobs.deployment import ANSWERS, RECORDS
from hostelry_lab.jobs.drill import is_end_due
from hostelry_lab.jobs.findings import (
    read_answers,
    read_notifications,
    read_records,
    request_facts,
    stray_notifications,
)
from hostelry_lab.jobs.jobs_ledger import count_requests
from hostelry_lab.jobs.plan import PlannedFile, PlannedRequest
from hostelry_lab.jobs.submissions import SubmissionTry

ASKED = PlannedRequest("r1", 10, by_location=False, is_refused=False)
REFUSED = PlannedRequest("r2", 10, by_location=True, is_refused=True)


class FakeDeployment:
    """Objects in memory, and the files of topics in a folder."""

    name = "drill"

    def __init__(self, folder: Path, objects: dict[str, bytes]) -> None:
        self._folder = folder
        self._objects = objects
        self.s3 = self

    def pages(self, prefix: str) -> Iterator[list[str]]:
        yield [it for it in self._objects if it.startswith(prefix)]

    def get_object(self, Bucket: str, Key: str) -> dict[str, Any]:
        return {"Body": io.BytesIO(self._objects[Key])}

    def topic_files(self, end: str) -> list[Path]:
        return sorted(self._folder.glob(f"{end}*"))


def line(message_id: str, inference_id: str, status: str) -> str:
    message = {"inferenceId": inference_id, "invocationStatus": status}
    return json.dumps({"MessageId": message_id, "Message": json.dumps(message)}) + "\n"


def test_notifications_are_counted_by_id_and_a_line_that_was_cut_off_is_left_out(
    tmp_path: Path,
) -> None:
    test = json.dumps({"MessageId": "t", "Message": json.dumps({"x": "TestNotification"})}) + "\n"
    (tmp_path / "ok").write_text(test + line("m1", "r1-1", "Completed") * 2 + '{"Mess\n')
    (tmp_path / "error").write_text(line("m2", "r2-1", "Failed") + line("m3", "r2-1", "Failed"))
    found = read_notifications(FakeDeployment(tmp_path, {}))  # type: ignore[arg-type]
    assert (found.messages, found.repeats, found.unreadable, found.total()) == (4, 1, 1, 2)
    assert (found.of("ok", "r1-1"), found.of("error", "r2-1"), found.of("ok", "r2-1")) == (1, 2, 0)
    assert stray_notifications([SubmissionTry(ASKED, "r1-1", acknowledged=True)], found) == 1


def test_objects_are_compared_with_what_is_due(tmp_path: Path) -> None:
    objects = {
        f"{ANSWERS}r1-1.out": ASKED.answer,
        f"{ANSWERS}r1-2.out": ASKED.answer[:-1],
        f"{ANSWERS}r2-1-error.out": b'Received client error (400) with "%s"' % REFUSED.answer,
        f"{ANSWERS}r2-2-error.out": b"The copy died.",
        f"{ANSWERS}r9-1.out": b"",
    }
    tries = [
        SubmissionTry(request, f"{request.name}-{number}", acknowledged=True)
        for request in (ASKED, REFUSED)
        for number in (1, 2, 3)
    ]
    deployment: Any = FakeDeployment(tmp_path, objects)
    found = read_answers(deployment, tries)
    assert found.outputs == {"r1-1": True, "r1-2": False}
    assert found.failures == {"r2-1": True, "r2-2": False}
    assert found.strays == 1
    counts = count_requests(request_facts(tries, found, read_notifications(deployment)))
    assert (counts.answered, counts.failed_as_due, counts.wrong, counts.missing) == (1, 1, 2, 2)


def test_the_records_of_each_output_are_compared(tmp_path: Path) -> None:
    files = [PlannedFile("f1", 3, None), PlannedFile("f2", 3, 1)]
    lines = list(files[0].answers())
    objects = {
        f"{RECORDS}f1.out": b"\n".join([lines[0], lines[0], lines[2]]) + b"\n",
        f"{RECORDS}f9.out": b"",
    }
    deployment: Any = FakeDeployment(tmp_path, objects)
    found, strays = read_records(deployment, files)
    assert (found["f1"].answered, found["f1"].doubled, found["f1"].missing) == (2, 1, 1)
    assert (list(found), strays) == (["f1"], 1)


def test_a_batch_is_due_to_fail_by_the_number_of_files_with_refused_records() -> None:
    files = [PlannedFile("f1", 3, None), PlannedFile("f2", 3, 1)]
    due = f"ClientError: 1 of 2 objects failed. The first: s3://b/f2: {files[1].refusal.decode()}"
    assert is_end_due(files, "Failed", due)
    assert not is_end_due(files, "Failed", due.replace("1 of", "2 of"))
    assert not is_end_due(files, "Failed", due.replace("/f2:", "/f1:"))
    assert not is_end_due(files, "Completed", "")
    assert is_end_due(files[:1], "Completed", "")
    assert not is_end_due(files[:1], "Failed", due)
