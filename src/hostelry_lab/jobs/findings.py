"""Outputs, failure objects and notifications, read once the work is over."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec

from hostelry_lab.jobs.deployment import ANSWERS, FILES, RECORDS, JobsDeployment
from hostelry_lab.jobs.jobs_ledger import LineFacts, RequestFacts, compare_lines
from hostelry_lab.jobs.plan import PlannedFile
from hostelry_lab.jobs.submissions import SubmissionTry

READERS = 8
OUT, ERROR_OUT = ".out", "-error.out"
NOTIFIED = {"ok": "Completed", "error": "Failed"}


@dataclass(slots=True)
class NotificationFindings:
    """Message ids of each InferenceId, by topic. `repeats` counts messages with a known id."""

    ids: Mapping[str, dict[str, set[str]]] = field(
        default_factory=lambda: {end: defaultdict(set) for end in NOTIFIED}
    )
    messages: int = 0
    repeats: int = 0
    unreadable: int = 0

    def of(self, end: str, inference_id: str) -> int:
        """The number of messages with different ids."""
        return len(self.ids[end].get(inference_id, ()))

    def total(self) -> int:
        """The number of requests with a message."""
        return sum(map(len, self.ids.values()))


def read_notifications(deployment: JobsDeployment) -> NotificationFindings:
    """All notifications that are in the files of both topics."""
    found = NotificationFindings()
    for end, status in NOTIFIED.items():
        for path in deployment.topic_files(end):
            with path.open("rb") as lines:
                for line in lines:
                    _count_line(found, end, status, line)
    return found


def _count_line(found: NotificationFindings, end: str, status: str, line: bytes) -> None:
    try:
        envelope = msgspec.json.decode(line)
        message = msgspec.json.decode(envelope["Message"])
    except msgspec.DecodeError:
        found.unreadable += 1  # a message that a kill cut off, and that is sent again
        return
    if message.get("invocationStatus") != status:
        return  # the test notification of CreateEndpoint
    ids = found.ids[end][message["inferenceId"]]
    found.messages += 1
    found.repeats += envelope["MessageId"] in ids
    ids.add(envelope["MessageId"])


@dataclass(frozen=True, slots=True)
class ObjectFindings:
    """Each try's objects by InferenceId: whether the bytes are right. `strays` belong to no try."""

    outputs: Mapping[str, bool]
    failures: Mapping[str, bool]
    strays: int


def read_answers(deployment: JobsDeployment, tries: Sequence[SubmissionTry]) -> ObjectFindings:
    """Read every output and failure object of the requests."""
    requests = {it.inference_id: it.request for it in tries}
    outputs: dict[str, bool] = {}
    failures: dict[str, bool] = {}
    strays: list[str] = []

    def check(key: str) -> None:
        name = key.removeprefix(ANSWERS)
        is_failure = name.endswith(ERROR_OUT)
        inference_id = name.removesuffix(ERROR_OUT if is_failure else OUT)
        request = requests.get(inference_id)
        if request is None:
            strays.append(key)
            return
        body, due = _read(deployment, key), request.answer
        if is_failure:
            failures[inference_id] = request.is_refused and due in body
        else:
            outputs[inference_id] = not request.is_refused and body == due

    _for_each(_keys(deployment, ANSWERS), check)
    return ObjectFindings(outputs, failures, len(strays))


def read_records(
    deployment: JobsDeployment, files: Sequence[PlannedFile]
) -> tuple[Mapping[str, LineFacts], int]:
    """The records of every batch output, by its file's name, and the number of stray outputs."""
    planned = {RECORDS + it.name + OUT: it for it in files}
    found: dict[str, LineFacts] = {}
    strays: list[str] = []

    def check(key: str) -> None:
        file = planned.get(key)
        if file is None:
            strays.append(key)
            return
        lines = _read(deployment, key).split(b"\n")
        last = lines.pop()
        found[file.name] = compare_lines(list(file.answers()), [*lines, *([last] if last else [])])

    _for_each(_keys(deployment, RECORDS), check)
    return found, len(strays)


def write_files(deployment: JobsDeployment, files: Sequence[PlannedFile]) -> None:
    """Put the inputs of the batch."""

    def put(file: PlannedFile) -> None:
        body = b"".join(it + b"\n" for it in file.inputs())
        deployment.s3.put_object(Bucket=deployment.name, Key=FILES + file.name, Body=body)

    with ThreadPoolExecutor(READERS) as pool:
        for ended in pool.map(put, files):
            assert ended is None


def request_facts(
    tries: Sequence[SubmissionTry], objects: ObjectFindings, notes: NotificationFindings
) -> Iterator[RequestFacts]:
    """The observed facts of each try."""
    for submission in tries:
        yield RequestFacts(
            acknowledged=submission.acknowledged,
            is_refused=submission.request.is_refused,
            output=objects.outputs.get(submission.inference_id),
            failure=objects.failures.get(submission.inference_id),
            successes=notes.of("ok", submission.inference_id),
            errors=notes.of("error", submission.inference_id),
        )


def stray_notifications(tries: Sequence[SubmissionTry], notes: NotificationFindings) -> int:
    """Notifications of InferenceIds that the drill never used."""
    known = Counter(it.inference_id for it in tries)
    return sum(1 for ids in notes.ids.values() for it in ids if it not in known)


def _keys(deployment: JobsDeployment, prefix: str) -> Iterator[str]:
    for page in deployment.pages(prefix):
        yield from page


def _for_each(keys: Iterator[str], check: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(READERS) as pool:
        for ended in pool.map(check, keys):
            assert ended is None


def _read(deployment: JobsDeployment, key: str) -> bytes:
    body: bytes = deployment.s3.get_object(Bucket=deployment.name, Key=key)["Body"].read()
    return body
