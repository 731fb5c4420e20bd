"""The ledger of the drill `cluster` as text. Pure."""

from collections.abc import Mapping

from hostelry.cli.status_text import columns
from hostelry_lab.cluster.cluster_ledger import ClusterLedger, ScenarioReport, StoreFindings

HEADINGS = (
    "scenario",
    "fault s",
    "calls",
    "failed",
    "slowest s",
    "served s",
    "leader s",
    "write s",
    "fenced s",
    "copies s",
    "acknowledged",
    "refused",
    "",
)


def cluster_lines(ledger: ClusterLedger) -> list[str]:
    """A row for each scenario, the means of each, and the database's findings."""
    rows = columns([HEADINGS, *(scenario_row(it) for it in ledger.scenarios)])
    means = columns((it.name, it.not_run or it.means) for it in ledger.scenarios)
    return [
        *rows,
        "",
        *means,
        "",
        f"load      {ledger.threads_each} callers and a writer at each host; {ledger.between}",
        *store_lines(ledger.store),
    ]


def scenario_row(row: ScenarioReport) -> tuple[str, ...]:
    """The cells of a scenario. Seconds count from the fault, but `fenced` from the fault's end."""
    if row.not_run is not None:
        return (row.name, *["-"] * (len(HEADINGS) - 2), "NOT RUN")
    failed = (f"{host} {counts_text(it)}" for host, it in row.failures.items() if it)
    return (
        row.name,
        f"{row.fault_s:.1f}",
        str(sum(row.calls.values())),
        "; ".join(failed) or "0",
        f"{row.slowest_s:.1f}",
        f"{row.served_s:.1f}",
        seconds_text(row.leader_s),
        ", ".join(f"{host} {seconds_text(it)}" for host, it in row.write_s.items()),
        seconds_text(row.fenced_s),
        seconds_text(row.copies_s),
        str(row.acknowledged),
        counts_text(row.refused) or "0",
        "FAIL" if row.missed else "PASS",
    )


def store_lines(found: StoreFindings) -> list[str]:
    """The lines about the records that the database kept."""
    return [
        f"writes    {found.acknowledged} acknowledged: {len(found.lost)} lost,"
        f" {len(found.doubled)} made twice; {found.kept_unacknowledged} more were kept whose"
        " answer was an error",
        f"epochs    {found.accepted} accepted writes by {found.epochs} epochs,"
        f" {len(found.two_leaders)} not by the newest, or below the one before",
    ]


def counts_text(counts: Mapping[str, int]) -> str:
    """The number of each kind."""
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def seconds_text(value: float | None) -> str:
    """A duration in seconds, or - for None."""
    return "-" if value is None else f"{value:.1f}"
