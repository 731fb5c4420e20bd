"""Quotas follow control and are kept on disk. Their use is reported by one worker of a host."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.quotas.quota_sample import NOON, call, index, quota

from hostelry.base.clock import ManualClock
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.dataplane.fake import FakeReplyConnection
from hostelry.dataplane.quota_reports import QuotaReporter
from hostelry.dataplane.quota_source import NO_QUOTAS, PublishedQuotas, load_document
from hostelry.dataplane.shared.quota_table import QuotaTable
from hostelry.domain.quota import CallPrices, GrantedShares, QuotaDocument, QuotaGrants, QuotaReport
from hostelry.http1.reply import ConnectError, Reply
from hostelry.http1.upstream import Timeouts
from hostelry.quotas.matching import build_document
from hostelry.quotas.measures import CONCURRENCY, NUM_MEASURES

ONE = build_document([quota("one", concurrency=1)], CallPrices())
CALL = (1, 0, 0, 1, 0, 0)


class ScriptedControl:
    """Control. It gives each answer of a list once, then refuses connections."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self.answers = list(answers)
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.has_ended = asyncio.Event()

    def send_now(
        self, address: str, parts: tuple[bytes, bytes], timeouts: Timeouts
    ) -> Reply | None:
        return None

    async def send(
        self,
        address: str,
        parts: tuple[bytes, bytes],
        timeouts: Timeouts,
        whole_below_bytes: int | None = None,
    ) -> Reply:
        await asyncio.sleep(0)
        self.heads.append(parts[0])
        self.bodies.append(parts[1])
        if not self.answers:
            self.has_ended.set()
            raise ConnectError("refused")
        status, body = self.answers.pop(0)
        reply = Reply(FakeReplyConnection())
        reply.set_head(status, {})
        reply.add_chunk(body)
        reply.end(reusable=True)
        return reply


def follow(path: Path, *answers: tuple[int, bytes]) -> tuple[list[QuotaDocument], list[bytes]]:
    """The documents that listeners get, and the heads of polls, until control is away."""
    seen: list[QuotaDocument] = []
    control = ScriptedControl(*answers)

    async def main() -> None:
        source = PublishedQuotas(control, "http://c:1", "key", path, write_whole, ManualClock())
        source.listen(seen.append)
        following = asyncio.create_task(source.follow())
        await control.has_ended.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(main())
    return seen, control.heads


def test_quotas_are_followed_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "quotas.json"
    seen, heads = follow(path, (200, msgspec.json.encode(ONE)), (304, b""))
    assert seen == [NO_QUOTAS, ONE]
    assert b"have= " in heads[0]
    assert b"have=%b " % ONE.version.encode() in heads[1]
    assert load_document(path) == ONE
    assert follow(path)[0] == [ONE], "a gateway without control keeps its limits"


@cases(
    "answer",
    case("a refusal", (403, b"no caller")),
    case("a body that is not JSON", (200, b"<html>")),
    case("a quota without a limit", (200, b'{"version":"v","quotas":[{"id":"","name":"a"}]}')),
)
def test_quotas_stay_in_force_after(tmp_path: Path, answer: tuple[int, bytes]) -> None:
    path = tmp_path / "quotas.json"
    write_whole(path, msgspec.json.encode(ONE))
    assert follow(path, answer)[0] == [ONE]
    assert load_document(path) == ONE


def test_a_damaged_file_has_no_quotas(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "quotas.json"
    path.write_bytes(b"{")
    assert load_document(path) == NO_QUOTAS
    assert "waiting for control's quotas" in caplog.text


def reporter(folder: Path, table: QuotaTable | None, control: Any, host: str = "") -> QuotaReporter:
    lock = folder / "reporter"
    return QuotaReporter(lambda: table, lock, control, "http://c:1", "key", host, lambda: NOON)


async def test_one_worker_reports_and_the_next_takes_over(tmp_path: Path) -> None:
    grants = msgspec.json.encode(QuotaGrants())
    control = ScriptedControl(*[(200, grants)] * 4)
    table = QuotaTable(tmp_path / "w", tmp_path / "d", (0, 2), lambda: 100.0, num_slots=4)
    one, two = reporter(tmp_path, table, control), reporter(tmp_path, table, control)
    await one.step()
    assert control.bodies == [], "nothing is in use"
    table.take(index(quota(concurrency=2)).find(call()).counts, CALL, NOON)
    await one.step()
    await two.step()
    assert len(control.bodies) == 1
    (use,) = decode(control.bodies[0], QuotaReport).uses
    assert (use.quota_id, use.values, use.held[CONCURRENCY]) == ("q", (), 1)
    one.close()
    await two.step()
    assert len(control.bodies) == 2
    two.close()
    await reporter(tmp_path, None, control).step()
    assert len(control.bodies) == 2, "without a table there is nothing to report"


async def test_granted_shares_are_applied_and_a_silent_control_changes_nothing(
    tmp_path: Path,
) -> None:
    table = QuotaTable(None, None, (0, 1), lambda: 100.0, lambda: 2, num_slots=4)
    (one,) = counts = index(quota(concurrency=8)).find(call()).counts
    shares = tuple(3 if it == CONCURRENCY else -1 for it in range(NUM_MEASURES))
    grant = GrantedShares(key=one.key.hex(), quota_id="q", values=(), shares=shares)
    control = ScriptedControl((200, msgspec.json.encode(QuotaGrants(grants=(grant,)))))
    reporting = reporter(tmp_path, table, control, "host-1")
    for num_admitted in (3, 0):
        await reporting.step()
        taken = [table.take(counts, CALL, NOON) for _ in range(4)]
        assert sum(it.refusal is None for it in taken) == num_admitted
    assert len(control.bodies) == 2
    assert decode(control.bodies[1], QuotaReport).uses[0].shares[CONCURRENCY] == 3
    reporting.close()
