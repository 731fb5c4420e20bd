"""The parts of limits that several hosts with gateways may use, so that all together keep to them.

Each host reports its use every second, and gets its share of each limit. A share is a bound of the
host's own use. The sum of all shares that hosts may have in force never exceeds the limit:

the host's new share    in force at the host     counted as its share
----------------------  -----------------------  ------------------------------------------------
larger                  with the answer, or not  the new one, at once
smaller                 with the answer, or not  the old one, until a report shows the new one

The room that is left is divided evenly. A host with calls gets at least half of an even part, which
other hosts give up as their use leaves the window. A host that is silent for GONE_S loses its
shares. Until then it may use them. So a limit is exceeded only if a host still serves clients, but
has not reached control for so long.
"""

from collections.abc import Iterable, Mapping

import msgspec

from hostelry.domain.quota import GrantedShares, QuotaGrants, QuotaReport, ReportedUse
from hostelry.quotas.decision import DAY_S
from hostelry.quotas.measures import DAY_MEASURES, MINUTE_MEASURES, NUM_MEASURES

GONE_S = 60.0
DEMAND_S = 60.0
QUIET_S = 5.0  # after its start control raises no share, until all hosts have reported
NO_SHARE = -1
Limits = Mapping[str, tuple[tuple[int, int], ...]]  # by quota id: measures and numbers


class _Count(msgspec.Struct):
    """One count on one host. `demand_until_s`: it has calls."""

    use: ReportedUse
    shares: list[int]
    demand_until_s: float = 0.0


class _Host(msgspec.Struct):
    """The last report of a host, and the day of that report."""

    at_s: float
    day: int
    counts: dict[str, _Count]


class ShareLedger:
    """The shares and uses of all hosts. `now_s` is a clock that never goes back."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._hosts: dict[str, _Host] = {}
        self._gone: dict[str, list[int]] = {}  # by count: use of the day of hosts that are gone
        self._gone_day = 0

    def take(self, report: QuotaReport, limits: Limits, now_s: float, now: float) -> QuotaGrants:
        """Note a report, and return the host's shares. `now` is seconds since the epoch."""
        today = int(now // DAY_S)
        self._drop_silent(now_s, today)
        host = self._hosts.setdefault(report.host, _Host(now_s, today, {}))
        host.at_s, host.day = now_s, today
        num, before = len(self._hosts), host.counts
        host.counts = {}
        for use in report.uses:
            known = before.get(use.key)
            count = host.counts[use.key] = _Count(use, [NO_SHARE] * NUM_MEASURES)
            for measure, limit in limits.get(use.quota_id, ()):
                share = use.shares[measure]
                count.shares[measure] = limit // num if share == NO_SHARE else min(share, limit)
            if _has_calls(use, known):
                count.demand_until_s = now_s + DEMAND_S
            elif known is not None:
                count.demand_until_s = known.demand_until_s
        if not report.host:
            return QuotaGrants()
        granted = (self._grant(host, it, limits, now_s) for it in self._known_counts())
        return QuotaGrants(grants=tuple(it for it in granted if it is not None))

    def list_uses(self) -> list[ReportedUse]:
        """The uses of all hosts together."""
        found: dict[str, ReportedUse] = {}
        for host in self._hosts.values():
            for key, count in host.counts.items():
                known = found.get(key)
                found[key] = count.use if known is None else _add_uses(known, count.use)
        for key, gone in self._gone.items():
            if key in found:
                used = tuple(map(sum, zip(found[key].used, gone, strict=True)))
                found[key] = msgspec.structs.replace(found[key], used=used)
        return list(found.values())

    @property
    def num_hosts(self) -> int:
        """Number of hosts that report."""
        return len(self._hosts)

    def _known_counts(self) -> Iterable[ReportedUse]:
        found: dict[str, ReportedUse] = {}
        for host in self._hosts.values():
            for key, count in host.counts.items():
                found.setdefault(key, count.use)
        return found.values()

    def _grant(
        self, host: _Host, use: ReportedUse, limits: Limits, now_s: float
    ) -> GrantedShares | None:
        if use.quota_id not in limits:
            return None
        shares = [NO_SHARE] * NUM_MEASURES
        own = host.counts.get(use.key)
        for measure, limit in limits[use.quota_id]:
            limit = max(0, limit - self._gone.get(use.key, [0] * NUM_MEASURES)[measure])
            shares[measure] = self._find_share(host, use.key, measure, limit, now_s)
            if own is not None:
                own.shares[measure] = max(own.shares[measure], shares[measure])
        if own is None:  # it gets a share before its first call
            empty = _clear_use(use)
            host.counts[use.key] = _Count(empty, list(shares))
        return GrantedShares(
            key=use.key, quota_id=use.quota_id, values=use.values, shares=tuple(shares)
        )

    def _find_share(self, host: _Host, key: str, measure: int, limit: int, now_s: float) -> int:
        num, total, in_others, own_use, has_demand, in_force = len(self._hosts), 0, 0, 0, False, 0
        least = limit // (2 * num)
        for other in self._hosts.values():
            count = other.counts.get(key)
            in_use = 0 if count is None else count.use.used[measure] + count.use.held[measure]
            wants = count is not None and now_s < count.demand_until_s
            share = 0 if count is None else max(0, count.shares[measure])
            total += in_use
            if other is host:
                own_use, has_demand, in_force = in_use, wants, share
            else:
                in_others += max(share, least if wants else 0)
        left = max(0, limit - total)
        target = own_use + (-(-left // num) if has_demand else left // num)
        share = min(max(target, least if has_demand else 0), limit - in_others)
        if now_s - self._began_s < QUIET_S:
            share = min(share, in_force)
        return max(0, share)

    def _drop_silent(self, now_s: float, today: int) -> None:
        if today != self._gone_day:
            self._gone_day = today
            self._gone.clear()
        for name, host in tuple(self._hosts.items()):
            if now_s - host.at_s > GONE_S:
                del self._hosts[name]
                for key, count in host.counts.items() if host.day == today else ():
                    gone = self._gone.setdefault(key, [0] * NUM_MEASURES)
                    for measure in DAY_MEASURES:
                        gone[measure] += count.use.used[measure]


def _has_calls(use: ReportedUse, before: _Count | None) -> bool:
    """True if calls are under way, or came in the last minute or since the last report."""
    known = _clear_use(use) if before is None else before.use
    newer = zip((*use.used, *use.refused), (*known.used, *known.refused), strict=True)
    in_minute = any(use.used[it] for it in MINUTE_MEASURES)
    return in_minute or any(use.held) or any(now > was for now, was in newer)


def _clear_use(use: ReportedUse) -> ReportedUse:
    none = (0,) * NUM_MEASURES
    return msgspec.structs.replace(use, used=none, held=none, refused=none, warned=none)


def _add_uses(one: ReportedUse, other: ReportedUse) -> ReportedUse:
    sums = {
        name: tuple(map(sum, zip(getattr(one, name), getattr(other, name), strict=True)))
        for name in ("used", "held", "refused", "warned")
    }
    return msgspec.structs.replace(one, **sums)
