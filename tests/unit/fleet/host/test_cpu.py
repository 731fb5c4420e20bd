"""CPU time of processes, as the kernel counts it."""

from time import process_time

from hostelry.fleet.host.cpu import cpu_seconds
from hostelry.fleet.host.processes import own_identity
from hostelry.fleet.records import ProcessIdentity


def test_a_process_that_works_has_used_more() -> None:
    before, began_s = cpu_seconds([own_identity()]), process_time()
    while process_time() < began_s + 0.05:
        sum(range(10_000))
    assert cpu_seconds([own_identity()]) >= before + 0.04


def test_a_process_that_is_gone_has_used_nothing() -> None:
    gone = ProcessIdentity(pid=2**22 + 1, start_ticks=1, boot_id="another")
    assert cpu_seconds([gone]) == 0.0
