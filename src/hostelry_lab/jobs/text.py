"""The ledger of the drill `jobs` as text. Pure."""

from collections.abc import Iterable

from hostelry.cli.status_text import columns
from hostelry_lab.jobs.jobs_ledger import JobsLedger, KillReport, WorkCounts

ROWS = (
    ("answered", "answered"),
    ("failed_as_due", "failed as the model said"),
    ("missing", "missing"),
    ("doubled", "doubled"),
    ("out_of_order", "out of order"),
    ("wrong", "wrong bytes"),
    ("failed_otherwise", "failed otherwise"),
    ("unnotified", "without notification"),
)
NOT_OF_RECORDS = ("failed_otherwise", "unnotified")
NOT_OF_REQUESTS = ("out_of_order",)


def jobs_lines(ledger: JobsLedger) -> list[str]:
    """The ledger: counts, notifications, kills, rates."""
    requests, records, sizes = ledger.requests, ledger.records, ledger.sizes
    refusals = ", ".join(f"{count} {name}" for name, count in sorted(ledger.refusals.items()))
    unacknowledged = sum(ledger.refusals.values())
    return [
        f"seed      {sizes.seed}",
        *columns(
            [
                ("", "requests", "records"),
                ("submitted", str(sizes.num_requests), f"{sizes.num_records}"),
                ("acknowledged", str(requests.submitted), f"in {ledger.num_files} files"),
                *(_row(name, words, requests, records) for name, words in ROWS),
                ("seconds", f"{ledger.requests_s:.1f}", f"{ledger.records_s:.1f}"),
                (
                    "per second",
                    f"{requests.submitted / ledger.requests_s:.0f}",
                    f"{records.submitted / ledger.records_s:.0f}",
                ),
            ]
        ),
        f"tries     {unacknowledged} more that were not acknowledged ({refusals or 'none'}), of"
        f" which {requests.kept_unacknowledged} were kept",
        f"messages  {ledger.messages} notifications, {ledger.repeats} of them repeats by their id",
        f"batch     {ledger.job_end}",
        *kill_lines(ledger.kills),
    ]


def _row(name: str, words: str, requests: WorkCounts, records: WorkCounts) -> tuple[str, str, str]:
    return (
        words,
        "-" if name in NOT_OF_REQUESTS else str(getattr(requests, name)),
        "-" if name in NOT_OF_RECORDS else str(getattr(records, name)),
    )


def kill_lines(kills: Iterable[KillReport]) -> list[str]:
    """A line for each kind of process that was killed."""
    by_kind: dict[str, list[KillReport]] = {}
    for kill in kills:
        by_kind.setdefault(kill.kind, []).append(kill)
    rows = [("kill -9 of", "times", "back after, in s")]
    for kind, made in sorted(by_kind.items()):
        backs = ("never" if it.back_s is None else f"{it.back_s:.1f}" for it in made)
        rows.append((kind, str(len(made)), ", ".join(backs)))
    return columns(rows)
