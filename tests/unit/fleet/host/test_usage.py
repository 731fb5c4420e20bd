"""CPU time and memory of processes, as the kernel counts them."""

from time import process_time

from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import own_identity
from hostelry.fleet.host.usage import MemoryUse, bound_held_bytes, cpu_seconds, memory_use


def test_a_process_that_works_has_used_more() -> None:
    before, began_s = cpu_seconds([own_identity()]), process_time()
    while process_time() < began_s + 0.2:
        sum(range(10_000))
    # The kernel counts user and system time in ticks of 10 ms and drops what is over.
    assert cpu_seconds([own_identity()]) > before + 0.15


def test_a_process_holds_no_more_than_its_bound() -> None:
    use = memory_use([own_identity()])
    assert 0 < use.held_bytes <= bound_held_bytes([own_identity()])
    assert use.resident_bytes > 2**20


def test_a_process_that_is_gone_has_used_nothing() -> None:
    gone = ProcessIdentity(pid=2**22 + 1, start_ticks=1, boot_id="another")
    assert cpu_seconds([gone]) == 0.0
    assert memory_use([gone]) == MemoryUse()
    assert bound_held_bytes([gone]) == 0
