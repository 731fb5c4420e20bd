from dataclasses import replace

from tests.cases import case, cases

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


@cases(
    "most, available_bytes, num_copies",
    case("memory for many more leaves the most", 100, 2**36, 100),
    case("half of the memory is taken", 100, 20 * COPY_BYTES, 10),
    case("no memory is known", 100, 0, 0),
)
def test_how_many_copies_the_machine_has_memory_for(
    most: int, available_bytes: int, num_copies: int
) -> None:
    assert num_that_fit(most, available_bytes) == num_copies


NEED = "a copy needs 3932 MB and 0.25 CPUs; "


@cases(
    "reason, is_true",
    case(
        "memory is short on the instance",
        f"{NEED}the largest free block is 16 MB on i-1 (ml.m5.24xlarge, with 71 CPUs)",
        True,
    ),
    case("none is free", f"{NEED}no memory is free on i-1 (ml.m5.24xlarge)", True),
    case("there is no reason", "", False),
    case("another cause", f"{NEED}there is no instance to hold it", False),
    case("another instance", f"{NEED}no memory is free on i-2 (ml.m5.large)", False),
    case("another component's need", "a copy needs 393 MB; no memory is free on i-1", False),
)
def test_a_reason_is_true_if_it_is_the_memory_of_the_instance(reason: str, is_true: bool) -> None:
    assert untrue_reasons({"c": reason}, 3932, "i-1") == ({} if is_true else {"c": reason})


@cases(
    "now, restarted",
    case("the same processes beside others", {"a": 1, "b": 2, "c": 3}, ()),
    case("another process", {"a": 9, "b": 2}, ("a",)),
    case("a copy does not serve any more", {"a": 1}, ("b",)),
)
def test_copies_that_served_keep_their_processes(
    now: dict[str, int], restarted: tuple[str, ...]
) -> None:
    assert restarted_copies({"a": 1, "b": 2}, now) == restarted


@cases(
    "found, missed, late",
    case("all is well", GOOD, [], []),
    case(
        "nothing happened while the drill watched",
        replace(GOOD, first_s=None, agent_s=None, ready_s=None, gone_s=None),
        ["no copy served", "no successor", "not all of 100", "not all copies were gone"],
        [],
    ),
    case("a refusal", replace(GOOD, refused=("Throttled",)), ["Throttled"], []),
    case("copies that restarted", replace(GOOD, restarted=("a", "b")), ["a, b"], []),
    case("too many fit", replace(GOOD, num_placeless=1), ["1 components"], []),
    case("no reason is given", replace(GOOD, untrue={"c": ""}), ["c, which"], []),
    case("no answer", replace(GOOD, num_describes_refused=3), ["3 Describes"], []),
    case("a slow Describe", replace(GOOD, describe_s=0.6), [], ["0.60 s"]),
    case("a slow Describe without CPUs left", replace(GOOD, describe_s=0.6, busy=0.95), [], []),
    case("a hang", replace(GOOD, describe_s=11, busy=1.0), ["11.0 s"], []),
)
def test_what_the_drill_misses(found: CopiesFound, missed: list[str], late: list[str]) -> None:
    broken, slow = broken_promises(found), too_slow(found)
    assert all(text in it for text, it in zip(missed, broken, strict=True))
    assert all(text in it for text, it in zip(late, slow, strict=True))
