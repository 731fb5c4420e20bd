"""Held and free resources as values and text, and the reasons for copies' places."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.placement.fleets import (
    MB,
    QUIET,
    SPREAD,
    as_held,
    ask,
    held,
    host,
    needs,
    some_hosts,
    some_requests,
)

from hostelry.placement.explain import (
    free_text,
    list_uses,
    reservation_text,
    what_would_help,
    why_here,
)
from hostelry.placement.pack import place
from hostelry.placement.values import CopyRequest, Held, Host, Placed, WhyNot

HOSTS = [host("i-a", zone="1"), host("i-b", zone="2")]
CHAT = held("c1", "i-a", needs(2, 4096, 4), "chat")
EMBED = held("c2", "i-a", needs(0, 1024, 0.5), "embed")


def test_each_instance_shows_what_is_held_and_free() -> None:
    first, second = list_uses(HOSTS, [EMBED, CHAT])
    assert free_text(first) == "2 accelerators, 191488 MB and 43.5 CPUs (devices 2, 3)"
    assert [(it.held, reservation_text(it)) for it in first.copies] == [
        (CHAT, "2 accelerators, 4096 MB and 4 CPUs (devices 0, 1)"),
        (EMBED, "1024 MB and 0.5 CPUs"),
    ]
    assert second.copies == ()
    assert second.free_device_ids == (0, 1, 2, 3)


def test_a_memory_limit_is_shown() -> None:
    limited = replace(needs(1), max_memory_bytes=2048 * MB)
    (use,) = list_uses([host("i-x")], [held("c1", "i-x", limited)])
    assert reservation_text(use.copies[0]) == (
        "1 accelerator, 1024 MB and 1 CPU (device 0), at most 2048 MB"
    )


def test_why_a_copy_is_where_it_is() -> None:
    kinds = {
        "chat": ask("chat", needs(2), SPREAD),
        "embed": ask("embed", needs(0)),
    }
    other = held("c3", "i-b", needs(2), "chat")
    there = [CHAT, EMBED, other]
    assert why_here(CHAT, HOSTS, there, kinds) == (
        "SPREAD: on an instance with the fewest of its copies, 1 here (2 on 2 instances), "
        "1 of 2 in zone 1"
    )
    assert why_here(EMBED, HOSTS, there, kinds) == (
        "BINPACK: on the instance that it left the least free, beside 1 other (1 on 1 instance)"
    )
    alone = [host("i-a")]
    assert why_here(CHAT, alone, [CHAT], kinds) == (
        "SPREAD: on an instance with the fewest of its copies, 1 here (1 on 1 instance)"
    )
    assert why_here(EMBED, alone, [EMBED], kinds).endswith(", alone (1 on 1 instance)")
    assert why_here(CHAT, HOSTS, there, {}) == "nothing asks for it any more"
    assert why_here(CHAT, HOSTS[1:], there, kinds) == "its instance is gone"


@QUIET
@given(requests=st.lists(some_requests(), max_size=8), hosts=some_hosts)
def test_what_is_free_and_what_is_held_make_up_what_is_declared(
    requests: list[CopyRequest], hosts: list[Host]
) -> None:
    there = [
        as_held(f"c{number}", "x", it)
        for number, it in enumerate(place(requests, hosts, []).outcomes)
        if isinstance(it, Placed)
    ]
    for use in list_uses(hosts, there):
        ids = [*use.free_device_ids, *(it for one in use.copies for it in one.device_ids)]
        assert sorted(ids) == list(range(use.host.shape.accelerators))
        reserved = sum(it.held.requirements.min_memory_bytes for it in use.copies)
        assert use.free.memory_bytes + reserved == use.host.shape.memory_bytes
        cpus = sum(it.held.requirements.cpus for it in use.copies)
        assert abs(use.free.cpus + cpus - use.host.shape.cpus) < 1e-5


PINNED = replace(held("c3", "i-b", needs(3)), movable=False)


@cases(
    "asked, there, max_more, helps",
    case("no instance is large enough", ask("x", needs(9)), [], 3,
        "less in ComputeResourceRequirements, or an instance type that declares more"),
    case("instances do not follow copies", ask("x", needs(2)),
        [held("c1", "i-a", needs(3)), PINNED], None,
        "another instance: a higher DesiredInstanceCount, or ManagedInstanceScaling; "
        "fewer copies beside it, or less in its ComputeResourceRequirements"),
    case("a move would make room", ask("x", needs(4)), [held("c1", "i-a", needs(1)), PINNED], 0,
        "moving copy c1 from i-a to i-b; a higher MaxInstanceCount; "
        "fewer copies beside it, or less in its ComputeResourceRequirements"),
    case("no instance of the type is there", ask("x", needs(1), types=["ml.small"]), [], 2,
        "another instance, which is started by itself: 2 more may be"),
)  # fmt: skip
def test_what_would_help(
    asked: CopyRequest, there: list[Held], max_more: int | None, helps: str
) -> None:
    (why,) = place([asked], HOSTS, there).outcomes
    assert isinstance(why, WhyNot)
    assert what_would_help(why, max_more) == helps
