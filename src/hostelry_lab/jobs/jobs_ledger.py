"""The drill's counts, and the promises that they break. Pure.

A request is counted under the InferenceId that the drill chose. Each try has another one:

acknowledged   output     failure object   counted as
------------   --------   --------------   ------------------------------------------------------
yes            as due     none             answered, or wrong if the model was to refuse it
yes            none       as due           failed as due, or otherwise if the model was to answer
yes            none       none             missing
yes            exists     exists           doubled
no             none       none             never kept, which is right: the client tried again
no             otherwise                   as above, and kept: its client does not count it twice
-              -          -                two notifications of different ids: doubled
-              -          -                no notification of its end: unnotified
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from hostelry_lab.jobs.plan import JobsSizes, PlannedFile

# AWS's clients repeat calls with these errors by themselves, so such a refusal is not final.
RETRIED = frozenset(
    {
        "ServiceUnavailable",
        "InternalFailure",
        "EndpointConnectionError",
        "ConnectionClosedError",
        "ConnectTimeoutError",
        "ReadTimeoutError",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """One try at a request as seen afterwards.

    `output` and `failure`: whether the object has the expected bytes, or None without an object.
    `successes` and `errors`: notifications of different ids.
    """

    acknowledged: bool
    is_refused: bool
    output: bool | None
    failure: bool | None
    successes: int
    errors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFacts:
    """Records of one output by their defect. `answered` are right and in order."""

    answered: int = 0
    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    wrong: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCounts:
    """Requests, or records of a batch, by their outcome."""

    submitted: int
    kept_unacknowledged: int = 0
    answered: int = 0
    failed_as_due: int = 0
    failed_otherwise: int = 0
    missing: int = 0
    doubled: int = 0
    out_of_order: int = 0
    wrong: int = 0
    unnotified: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KillReport:
    """A kill after `at_s` of the work. `back_s` later its process was back (None: never)."""

    kind: str
    name: str
    at_s: float
    back_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsLedger:
    """All that the drill counted.

    `refusals`: submissions without an acknowledgement, by error. `messages`: lines of
    notifications, of which `repeats` had a known id. `job_end`: the batch's status and reason.
    `job_as_due`: whether `job_end` is the end that its refused records must cause.
    """

    sizes: JobsSizes
    num_files: int
    requests: WorkCounts
    records: WorkCounts
    refusals: Mapping[str, int]
    messages: int
    repeats: int
    strays: int
    job_end: str
    job_as_due: bool
    kills: Sequence[KillReport]
    requests_s: float
    records_s: float
    stuck: Sequence[str] = field(default=())

    def lost(self) -> list[str]:
        """A sentence for each kind of acknowledged work that was never answered."""
        missing = ((self.requests.missing, "requests"), (self.records.missing, "records"))
        return [f"{number} {what}" for number, what in missing if number]

    def broken(self) -> list[str]:
        """A sentence for each broken promise."""
        found = [*self.stuck]
        for what, counts in (("requests", self.requests), ("records", self.records)):
            found += [f"{number} {what} {words}" for words, number in _wrong(counts) if number]
        refused = {it: count for it, count in self.refusals.items() if it not in RETRIED}
        found += [f"{count} submissions refused with {it}" for it, count in refused.items()]
        if self.strays:
            found.append(f"{self.strays} objects or notifications that belong to no request")
        if not self.job_as_due:
            found.append(f"the batch ended otherwise than its records make it: {self.job_end}")
        found += [f"{it.name} did not come back" for it in self.kills if it.back_s is None]
        if len(self.kills) < self.sizes.num_kills:
            found.append(f"only {len(self.kills)} of {self.sizes.num_kills} kills were made")
        return found


def _wrong(counts: WorkCounts) -> list[tuple[str, int]]:
    return [
        ("missing", counts.missing),
        ("doubled", counts.doubled),
        ("out of order", counts.out_of_order),
        ("with wrong bytes", counts.wrong),
        ("failed that the model did not refuse", counts.failed_otherwise),
        ("without their notification", counts.unnotified),
    ]


def count_requests(facts: Iterable[RequestFacts]) -> WorkCounts:
    """The counts. Tries without an acknowledgement count only for broken promises."""
    counts: Counter[str] = Counter()
    for seen in facts:
        end, is_notified = _end_of(seen), seen.successes + seen.errors > 0
        if seen.acknowledged:
            counts["submitted"] += 1
        elif end == "missing" and not is_notified:
            continue
        else:
            counts["kept_unacknowledged"] += 1
        if seen.acknowledged or end not in ("answered", "failed_as_due"):
            counts[end] += 1
        counts["unnotified"] += end != "missing" and not is_notified
    return WorkCounts(**{"submitted": 0, **counts})


def _end_of(facts: RequestFacts) -> str:
    """The field of `WorkCounts` in which the try is counted."""
    if facts.output is None and facts.failure is None:
        return "missing"
    messages = facts.successes + facts.errors
    if (facts.output is not None and facts.failure is not None) or messages > 1:
        return "doubled"
    if facts.is_refused:
        return "failed_as_due" if facts.failure and not facts.successes else "wrong"
    if facts.output is None:
        return "failed_otherwise"
    return "answered" if facts.output and not facts.errors else "wrong"


def compare_lines(due: Sequence[bytes], found: Sequence[bytes]) -> LineFacts:
    """Compare the lines of an output with the expected lines, which differ from each other."""
    places = {line: number for number, line in enumerate(due)}
    seen: Counter[int] = Counter()
    wrong = doubled = out_of_order = 0
    last = -1
    for line in found:
        place = places.get(line)
        if place is None:
            wrong += 1
            continue
        seen[place] += 1
        if seen[place] > 1:
            doubled += 1
        elif place < last:
            out_of_order += 1
        last = max(last, place)
    return LineFacts(
        answered=len(seen) - out_of_order,
        missing=len(due) - len(seen),
        doubled=doubled,
        out_of_order=out_of_order,
        wrong=wrong,
    )


def count_records(files: Iterable[PlannedFile], found: Mapping[str, LineFacts]) -> WorkCounts:
    """The counts over all files. `found` has the files with an output, by name."""
    counts: Counter[str] = Counter()
    for file in files:
        counts["submitted"] += file.num_records
        lines = found.get(file.name)
        if file.refused is not None:
            # By AWS's rule the whole file fails, so an output of it would be wrong.
            counts["failed_as_due" if lines is None else "wrong"] += file.num_records
        elif lines is None:
            counts["missing"] += file.num_records
        else:
            counts.update({it.name: getattr(lines, it.name) for it in fields(lines)})
    return WorkCounts(**{"submitted": 0, **counts})
