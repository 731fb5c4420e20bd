"""Data sources of `hostelry top`: /proc, control, and in a thread the metrics of copies."""

import threading
from collections.abc import Mapping
from typing import Any

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.proc import TICKS_PER_S, processes, resident_bytes
from hostelry.cli.control_requests import control_state, document, send
from hostelry.cli.top.document import ProcessUse, TopLook, token_counts, token_rates
from hostelry.home.home import Credentials, Home, UpConfig
from hostelry.home.platform_processes import list_platform_names
from hostelry.home.run_file import live_run_file

TOKENS_EVERY_S = 2.0


class TopSources:
    """Reads the state of one platform. Rates are since the reading before."""

    def __init__(self, home: Home, config: UpConfig, credentials: Credentials) -> None:
        self._home, self._config, self._credentials = home, config, credentials
        self._ticks: dict[int, tuple[int, float]] = {}
        self._tokens: Mapping[str, float] = {}
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._watch_tokens, daemon=True)

    def __enter__(self) -> "TopSources":
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def look(self) -> TopLook:
        """Read the present state."""
        state = control_state(self._config, self._credentials)
        groups = _groups()
        used = [self._use(name, groups) for name in list_platform_names(self._home, self._config)]
        copies = {
            copy["id"]: cpu
            for endpoint in (state or {}).get("endpoints", ())
            for copy in endpoint["copies"]
            if (cpu := self._cpu(copy["pid"], groups)) is not None
        }
        kept = {pid for pid, *_ in groups.values()}
        self._ticks = {pid: seen for pid, seen in self._ticks.items() if pid in kept}
        return TopLook(
            at=SystemClock().now(),
            processes=used,
            state=state,
            load=None if state is None else self._load(),
            tokens_per_s=self._tokens,
            copy_cpu=copies,
        )

    def _use(self, name: str, groups: Mapping[int, tuple[int, int, int]]) -> ProcessUse:
        record = live_run_file(self._home, name)
        found = None if record is None else groups.get(record.pid)
        if record is None or found is None:
            return ProcessUse(name=name, pid=None, cpu_percent=None, memory_bytes=None)
        cpu = self._cpu(record.pid, groups)
        return ProcessUse(name=name, pid=record.pid, cpu_percent=cpu, memory_bytes=found[2])

    def _cpu(self, pid: int | None, groups: Mapping[int, tuple[int, int, int]]) -> float | None:
        """The CPU use of a process's group since the look before, in per cent of one CPU."""
        found = None if pid is None else groups.get(pid)
        if found is None:
            return None
        leader, ticks, _ = found
        now, before = monotonic_s(), self._ticks.get(leader)
        self._ticks[leader] = ticks, now
        if before is None or ticks < before[0] or now <= before[1]:
            return None
        return round(100 * (ticks - before[0]) / TICKS_PER_S / (now - before[1]), 1)

    def _load(self) -> Mapping[str, Any] | None:
        try:
            answer = send(self._config, self._credentials, "GET", "/internal/load")
            return document(answer) if answer.status_code == 200 else None
        except TerminalError:
            return None

    def _watch_tokens(self) -> None:
        """Update the token rates. They are empty while the gateway does not answer."""
        before: dict[tuple[str, str], float] = {}
        at = monotonic_s()
        while True:
            counts = self._token_counts()
            now = monotonic_s()
            self._tokens = token_rates(before, counts, now - at) if before else {}
            before, at = counts, now
            if self._ended.wait(TOKENS_EVERY_S):
                return

    def _token_counts(self) -> dict[tuple[str, str], float]:
        key = {"Authorization": f"Bearer {self._credentials.openai_api_key}"}
        try:
            answer = send(
                self._config,
                self._credentials,
                "GET",
                "/metrics/copies",
                process="gateway",
                headers=key,
            )
        except TerminalError:
            return {}
        return token_counts(answer.text) if answer.status_code == 200 else {}


def _groups() -> dict[int, tuple[int, int, int]]:
    """For each process by pid: the leader of its group, its CPU ticks and resident bytes."""
    by_group: dict[int, tuple[int, int]] = {}
    group_of: dict[int, int] = {}
    for stat in processes():
        group_of[stat.pid] = stat.group
        ticks, size = by_group.get(stat.group, (0, 0))
        by_group[stat.group] = ticks + stat.cpu_ticks, size + resident_bytes(stat.pid)
    return {pid: (group, *by_group[group]) for pid, group in group_of.items()}
