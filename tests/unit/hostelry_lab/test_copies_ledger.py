from dataclasses import replace

import pytest

from hostelry_lab.copies_ledger import (
    COPY_BYTES,
    CopiesFound,
    broken_promises,
    num_that_fit,
    restarted_copies,
    too_slow,
    untrue_reasons,
)

GOOD = CopiesFound(
    num_copies=100,
    num_without_room=2,
    first_s=0.0,
    agent_s=1.2,
    ready_s=20.0,
    gone_s=5.0,
    refused=(),
    restarted=(),
    num_placeless=2,
    untrue={},
    describe_s=0.5,
    num_describes_refused=0,
    busy=0.5,
)


@pytest.mark.parametrize(
    ("most", "available_bytes", "num_copies"),
    [
        pytest.param(100, 2**36, 100, id="memory for many more leaves the most"),
        pytest.param(100, 20 * COPY_BYTES, 10, id="half of the memory is taken"),
        pytest.param(100, 0, 0, id="no memory is known"),
    ],
)
def test_how_many_copies_the_machine_has_memory_for(
    most: int, available_bytes: int, num_copies: int
) -> None:
    assert num_that_fit(most, available_bytes) == num_copies


NEED = "a copy needs 3932 MB and 0.25 CPUs; "


@pytest.mark.parametrize(
    ("reason", "is_true"),
    [
        pytest.param(
            f"{NEED}the largest free block is 16 MB on i-1 (ml.m5.24xlarge, with 71 CPUs)",
            True,
            id="memory is short on the instance",
        ),
        pytest.param(f"{NEED}no memory is free on i-1 (ml.m5.24xlarge)", True, id="none is free"),
        pytest.param("", False, id="there is no reason"),
        pytest.param(f"{NEED}there is no instance to hold it", False, id="another cause"),
        pytest.param(f"{NEED}no memory is free on i-2 (ml.m5.large)", False, id="another instance"),
        pytest.param(
            "a copy needs 393 MB; no memory is free on i-1", False, id="another component's need"
        ),
    ],
)
def test_a_reason_is_true_if_it_is_the_memory_of_the_instance(reason: str, is_true: bool) -> None:
    assert untrue_reasons({"c": reason}, 3932, "i-1") == ({} if is_true else {"c": reason})


@pytest.mark.parametrize(
    ("now", "restarted"),
    [
        pytest.param({"a": 1, "b": 2, "c": 3}, (), id="the same processes beside others"),
        pytest.param({"a": 9, "b": 2}, ("a",), id="another process"),
        pytest.param({"a": 1}, ("b",), id="a copy does not serve any more"),
    ],
)
def test_copies_that_served_keep_their_processes(
    now: dict[str, int], restarted: tuple[str, ...]
) -> None:
    assert restarted_copies({"a": 1, "b": 2}, now) == restarted


@pytest.mark.parametrize(
    ("found", "missed", "late"),
    [
        pytest.param(GOOD, [], [], id="all is well"),
        pytest.param(
            replace(GOOD, first_s=None, agent_s=None, ready_s=None, gone_s=None),
            ["no copy served", "no successor", "not all of 100", "not all copies were gone"],
            [],
            id="nothing happened while the drill watched",
        ),
        pytest.param(replace(GOOD, refused=("Throttled",)), ["Throttled"], [], id="a refusal"),
        pytest.param(replace(GOOD, restarted=("a", "b")), ["a, b"], [], id="copies that restarted"),
        pytest.param(replace(GOOD, num_placeless=1), ["1 components"], [], id="too many fit"),
        pytest.param(replace(GOOD, untrue={"c": ""}), ["c, which"], [], id="no reason is given"),
        pytest.param(replace(GOOD, num_describes_refused=3), ["3 Describes"], [], id="no answer"),
        pytest.param(replace(GOOD, describe_s=0.6), [], ["0.60 s"], id="a slow Describe"),
        pytest.param(
            replace(GOOD, describe_s=0.6, busy=0.95), [], [], id="a slow Describe without CPUs left"
        ),
        pytest.param(replace(GOOD, describe_s=11, busy=1.0), ["11.0 s"], [], id="a hang"),
    ],
)
def test_what_the_drill_misses(found: CopiesFound, missed: list[str], late: list[str]) -> None:
    broken, slow = broken_promises(found), too_slow(found)
    assert all(text in it for text, it in zip(missed, broken, strict=True))
    assert all(text in it for text, it in zip(late, slow, strict=True))
