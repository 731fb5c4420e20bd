"""Shares of limits of several hosts: their uses together never exceed a limit."""

import random
from typing import Any

from tests.cases import case, cases

from hostelry.domain.quota import QuotaReport, ReportedUse
from hostelry.quotas.measures import CONCURRENCY, DAY_TOKENS, NUM_MEASURES
from hostelry.quotas.shares import GONE_S, NO_SHARE, QUIET_S, ShareLedger

KEY, ID = "ab" * 16, "q"
NOON = 43_200.0
NONE = (0,) * NUM_MEASURES


class SimulatedHost:
    """A host with calls that come and go, as the limit of concurrency admits them."""

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.held = self.refused = 0
        self.share = NO_SHARE
        self.num_hosts = 1

    def arrive(self) -> None:
        share = self.limit // self.num_hosts if self.share == NO_SHARE else self.share
        if self.held < share:
            self.held += 1
        else:
            self.refused += 1

    def report(self) -> QuotaReport:
        shares = [NO_SHARE] * NUM_MEASURES
        shares[CONCURRENCY] = self.share
        use = build_use(held={CONCURRENCY: self.held}, refused=self.refused, shares=tuple(shares))
        return QuotaReport(host=self.name, uses=(use,))


def build_use(
    held: dict[int, int] | None = None,
    used: dict[int, int] | None = None,
    refused: int = 0,
    shares: tuple[int, ...] = (NO_SHARE,) * NUM_MEASURES,
) -> ReportedUse:
    return ReportedUse(
        key=KEY,
        quota_id=ID,
        values=(),
        used=tuple((used or {}).get(it, 0) for it in range(NUM_MEASURES)),
        held=tuple((held or {}).get(it, 0) for it in range(NUM_MEASURES)),
        refused=(refused, *NONE[1:]),
        warned=NONE,
        shares=shares,
    )


@cases(
    "limit, num_hosts",
    case("a small limit", 3, 2),
    case("a limit below the number of hosts", 2, 3),
    case("a large limit", 200, 3),
)
def test_hosts_together_keep_to_a_limit(limit: int, num_hosts: int) -> None:
    for seed in range(20):
        draw = random.Random(seed)
        ledger = ShareLedger(-QUIET_S)
        hosts = [SimulatedHost(f"h{number}", limit) for number in range(num_hosts)]
        for host in hosts:
            host.num_hosts = num_hosts
        for step in range(600):
            host = draw.choice(hosts[: 1 + (step // 100) % num_hosts])
            for _ in range(draw.randrange(1 + limit // 4) + 1):
                host.arrive()
            leaving = draw.choice(hosts)
            leaving.held -= draw.randint(0, leaving.held)
            reporter = draw.choice(hosts)
            limits = {ID: ((CONCURRENCY, limit),)}
            answer = ledger.take(reporter.report(), limits, step / 10, NOON)
            if draw.random() < 0.8:  # other answers are lost
                for granted in answer.grants:
                    reporter.share = granted.shares[CONCURRENCY]
            assert sum(it.held for it in hosts) <= limit


def settle(hosts: list[SimulatedHost], ledger: ShareLedger, limit: int, busy: str) -> None:
    """Let hosts report for a while. The busy hosts always have more calls than they may have."""
    for step in range(40):
        for host in hosts:
            host.held = 0
            for _ in range(2 * limit if host.name in busy else 0):
                host.arrive()
            limits = {ID: ((CONCURRENCY, limit),)}
            for granted in ledger.take(host.report(), limits, 100 + step, NOON).grants:
                host.share = granted.shares[CONCURRENCY]


@cases(
    "busy, least",
    case("only one host has calls", "a", {"a": 99}),
    case("both have", "ab", {"a": 25, "b": 25}),
)
def test_a_host_with_calls_gets_the_shares_that_others_do_not_use(
    busy: str, least: dict[str, int]
) -> None:
    ledger = ShareLedger(0.0)
    hosts = [SimulatedHost(name, 100) for name in "ab"]
    for host in hosts:
        host.num_hosts = 2
    settle(hosts, ledger, 100, "a")
    settle(hosts, ledger, 100, busy)
    held = {it.name: it.held for it in hosts}
    assert sum(held.values()) <= 100
    assert all(held[name] >= number for name, number in least.items()), held


def test_the_only_host_has_the_whole_limit() -> None:
    ledger = ShareLedger(0.0)
    answer = ledger.take(QuotaReport(host="", uses=(build_use(),)), {}, 9.0, NOON)
    assert answer.grants == ()
    assert len(ledger.list_uses()) == 1


def test_a_new_control_raises_no_share_before_all_hosts_can_have_reported() -> None:
    def find_share(now_s: float) -> int:
        shares = tuple(7 if it == CONCURRENCY else NO_SHARE for it in range(NUM_MEASURES))
        use = build_use(held={CONCURRENCY: 7}, shares=shares)
        report = QuotaReport(host="a", uses=(use,))
        answer = ShareLedger(100.0).take(report, {ID: ((CONCURRENCY, 50),)}, now_s, NOON)
        return answer.grants[0].shares[CONCURRENCY]

    assert (find_share(101.0), find_share(100.0 + QUIET_S)) == (7, 50)


@cases(
    "silent_s, now, expected",
    case("a host that reported a moment ago", 5.0, NOON, (90, 10)),
    case("a host that is gone: its use of the day stays", GONE_S + 1, NOON, (90, 10)),
    case("a host that is gone, on the next day", GONE_S + 1, NOON + 86_400, (50, 50)),
)
def test_the_use_of_another_host_counts(
    silent_s: float, now: float, expected: tuple[int, int]
) -> None:
    ledger, limits = ShareLedger(-QUIET_S), {ID: ((DAY_TOKENS, 100),)}
    gone = QuotaReport(host="b", uses=(build_use(used={DAY_TOKENS: 40}),))
    ledger.take(gone, limits, 0.0, NOON)
    own = QuotaReport(host="a", uses=(build_use(used={DAY_TOKENS: 50}),))
    ledger.take(own, limits, silent_s, now)
    (total,) = ledger.list_uses()
    answer: Any = ledger.take(own, limits, silent_s, now)
    share = answer.grants[0].shares[DAY_TOKENS]
    assert total.used[DAY_TOKENS] == expected[0]
    assert share - 50 <= expected[1]
