"""Rules of the packages that models' code names: which are shared, and which sets are removed."""

import pytest
from tests.cases import case, cases

from hostelry.base.errors import HostelryError, TerminalError
from hostelry.fleet.rules.code_packages import (
    DiskFullError,
    InstalledSet,
    NotSharedError,
    PackageLimits,
    build_install_error,
    parse_added_packages,
    room_bytes,
    select_sets_to_remove,
    shared_requirements,
)


@cases(
    "text, expected",
    case("two", "six==1.15.0\n\n# a note\nnumpy  # why\n", ("six==1.15.0", "numpy")),
    case(
        "versions and a marker",
        'torch[cpu]>=2,<3; python_version > "3.8"',
        ('torch[cpu]>=2,<3; python_version > "3.8"',),
    ),
    case("an empty file", "", ()),
)
def test_plain_lines_are_shared(text: str, expected: tuple[str, ...]) -> None:
    assert shared_requirements(text.encode()) == expected


@pytest.mark.parametrize(
    "line",
    [
        "git+https://example.org/x.git",
        "https://example.org/x.whl",
        "x @ file:///etc/passwd",
        "-e .",
        "-r other.txt",
        "--index-url https://example.org",
        "--extra-index-url=https://example.org",
        "./wheel",
        "../x",
        "/x",
        "x.whl",
        "sub/x-1.0.tar.gz",
        "${HOME}",
        "six \\",
        "six==1 --hash=sha256:00",
        "@x",
    ],
)
def test_any_other_line_is_left_to_the_copy(line: str) -> None:
    with pytest.raises(NotSharedError, match="more than a package's name"):
        shared_requirements(f"numpy\n{line}\n".encode())


@cases(
    "content, words",
    case("no text", b"\xff\xfe", "not UTF-8"),
    case("too many lines", b"six\n" * 501, "501 lines"),
)
def test_a_strange_file_is_left_to_the_copy(content: bytes, words: str) -> None:
    with pytest.raises(NotSharedError, match=words):
        shared_requirements(content)


@cases(
    "lines, expected",
    case("two", ["Would install 2 packages", "+ a==1", "+ b-c==2.0"], ("a==1", "b-c==2.0")),
    case("none", ["Would make no changes"], ()),
    case("in place", ["Would install 1 package", "- a==1", "+ a==2"], ("a==2",)),
)  # fmt: skip
def test_the_trials_answer_names_what_is_added(lines: list[str], expected: tuple[str, ...]) -> None:
    assert parse_added_packages(lines) == expected


def test_an_answer_that_names_fewer_than_it_counts_is_not_believed() -> None:
    with pytest.raises(TerminalError, match="cannot be understood"):
        parse_added_packages(["Would install 2 packages", "+ a==1"])


@cases(
    "line, kind",
    case("no wheel: the copy's own", "x has no usable wheels", NotSharedError),
    case("the disk", "write: No space left on device (os error 28)", DiskFullError),
    case("any other is a failure", "no version of x", TerminalError),
)
def test_a_failed_installation_has_its_kind(line: str, kind: type[HostelryError]) -> None:
    found = build_install_error(["first", line], "/packages", 7)
    assert type(found) is kind
    assert line in str(found)


def installed(key: str, num_bytes: int, used_at: float) -> InstalledSet:
    return InstalledSet(key=key, num_bytes=num_bytes, used_at=used_at)


SETS = [installed("old", 5, 0.0), installed("mid", 5, 50.0), installed("new", 5, 90.0)]


@cases(
    "limits, in_use, expected",
    case("unused for long", PackageLimits(kept_s=100, max_bytes=15), [], ["old"]),
    case("within the bound", PackageLimits(kept_s=1e9, max_bytes=15), [], []),
    case("for room", PackageLimits(kept_s=1e9, max_bytes=9), [], ["old", "mid"]),
    case("in use", PackageLimits(kept_s=1e9, max_bytes=9), ["old"], ["mid", "new"]),
    case("all used", PackageLimits(kept_s=0, max_bytes=0), ["old", "mid", "new"], []),
)
def test_unused_sets_are_removed(
    limits: PackageLimits, in_use: list[str], expected: list[str]
) -> None:
    assert select_sets_to_remove(SETS, in_use, 100.0, limits) == expected


def test_a_set_may_take_what_those_in_use_leave() -> None:
    limits = PackageLimits(max_bytes=12, max_set_bytes=9)
    assert room_bytes(SETS, [], limits) == 9
    assert room_bytes(SETS, ["old"], limits) == 7
    assert room_bytes(SETS, ["old", "mid", "new"], limits) == 0
