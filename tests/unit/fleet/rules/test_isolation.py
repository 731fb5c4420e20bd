"""The isolation that holds for a copy, judged by what /proc shows of its processes."""

from collections.abc import Sequence

from msgspec.structs import replace
from tests.cases import case, cases

from hostelry.domain.isolation import KINDS, CopyLevel
from hostelry.fleet.rules.isolation import (
    GroupLimits,
    SeenProcess,
    Surroundings,
    describe_missing,
    judge_isolation,
)

MIB = 1024**2
AGENTS, ANOTHERS, OWN = ({kind: first + at for at, kind in enumerate(KINDS)} for first in (1, 5, 9))
AROUND = Surroundings(
    users=frozenset({0, 7001}), namespaces=frozenset({*AGENTS.values(), *ANOTHERS.values()})
)
PLAIN = SeenProcess(users=frozenset({0}), capabilities=1, namespaces=AGENTS)
USER = SeenProcess(users=frozenset({7002}), capabilities=0, namespaces=AGENTS)
LIMITS = GroupLimits(max_memory_bytes=64 * MIB, cpus=2.0)
WHOLE = replace(USER, namespaces=OWN, limits=LIMITS)


@cases(
    "asked, processes, level, missing",
    case("nothing asked, and nothing separate", None, [PLAIN], CopyLevel.PROCESS, ""),
    case("processes always hold", CopyLevel.PROCESS, [PLAIN], CopyLevel.PROCESS, ""),
    case("an own user", CopyLevel.USER, [USER, USER], CopyLevel.USER, ""),
    case(
        "all that a container needs", CopyLevel.CONTAINER, [WHOLE, WHOLE], CopyLevel.CONTAINER, ""
    ),
    case("more than was asked", CopyLevel.USER, [WHOLE], CopyLevel.CONTAINER, ""),
    case("no process", CopyLevel.USER, [], CopyLevel.PROCESS, "No process"),
    case("the agent's user", CopyLevel.USER, [PLAIN], CopyLevel.PROCESS, "has the user 0"),
    case(
        "another copy's user",
        CopyLevel.USER,
        [replace(USER, users=frozenset({7001}))],
        CopyLevel.PROCESS,
        "has the user 7001",
    ),
    case(
        "a saved user that is root's",
        CopyLevel.USER,
        [replace(USER, users=frozenset({7002, 0}))],
        CopyLevel.PROCESS,
        "has the user 0",
    ),
    case(
        "one process of many with a capability",
        CopyLevel.USER,
        [USER, replace(USER, capabilities=1 << 21)],
        CopyLevel.PROCESS,
        "CapEff 0000000000200000",
    ),
    case(
        "the agent's network",
        CopyLevel.CONTAINER,
        [replace(WHOLE, namespaces={**OWN, "net": AGENTS["net"]})],
        CopyLevel.USER,
        "shares the namespace of network (net).",
    ),
    case(
        "one process with another copy's files",
        CopyLevel.CONTAINER,
        [WHOLE, replace(WHOLE, namespaces={**OWN, "mnt": ANOTHERS["mnt"]})],
        CopyLevel.USER,
        "file systems (mnt)",
    ),
    case(
        "one process outside of a control group",
        CopyLevel.CONTAINER,
        [WHOLE, replace(WHOLE, limits=None)],
        CopyLevel.USER,
        "No control group limits",
    ),
    case(
        "a control group without the memory limit",
        CopyLevel.CONTAINER,
        [replace(WHOLE, limits=replace(LIMITS, max_memory_bytes=None))],
        CopyLevel.USER,
        "MaxMemoryRequiredInMb",
    ),
)
def test_a_level_holds_if_nothing_of_it_is_missing(
    asked: CopyLevel | None, processes: Sequence[SeenProcess], level: CopyLevel, missing: str
) -> None:
    held = judge_isolation(asked, processes, AROUND, max_memory_bytes=64 * MIB)
    assert (held.level, held.asked, bool(held.missing)) == (level, asked, bool(missing))
    assert missing in describe_missing(held)


def test_what_holds_is_reported_in_any_case() -> None:
    held = judge_isolation(None, [WHOLE, replace(WHOLE, namespaces=AGENTS | {"pid": 99})], AROUND)
    assert (held.user, held.has_own_user, held.namespaces) == (7002, True, ("pid",))
    assert (held.max_memory_bytes, held.cpus) == (64 * MIB, 2.0)


@cases(
    "namespaces, level",
    case("namespaces of files and processes stand for a user", OWN, CopyLevel.CONTAINER),
    case("with the machine's network it is as a user", OWN | {"net": 4}, CopyLevel.USER),
    case("with the machine's processes it is not", OWN | {"pid": 2}, CopyLevel.PROCESS),
)
def test_a_container_of_an_image_may_run_as_root(
    namespaces: dict[str, int], level: CopyLevel
) -> None:
    seen = replace(PLAIN, namespaces=namespaces, limits=LIMITS)
    held = judge_isolation(CopyLevel.CONTAINER, [seen], AROUND, is_image=True)
    assert (held.level, held.has_own_user) == (level, False)
