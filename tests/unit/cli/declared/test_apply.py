"""An application that is killed at any of its writes, and the one after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.selection import numbers
from tests.unit.cli.declared.documents import LATER, SHOP
from tests.unit.cli.declared.rig import ROLE, Killed, TownAws, apply, described, difference
from tests.unit.reconcile.samples import Town

from hostelry.cli.artifacts.files import FoundFile, ObjectOrder
from hostelry.cli.declared.application import AppliedEnd, AppliedStep
from hostelry.cli.declared.apply import TerminalProgress, short_field, size_text, value_text
from hostelry.cli.declared.export import build_document, document_text
from hostelry.cli.declared.observation import observed_state
from hostelry.cli.declared.resource import (
    ABSENT,
    ApplyStep,
    FieldChange,
    ResourceKey,
    ResourceKind,
    StepAct,
    UploadedFile,
    changes,
)

KEY = ResourceKey(ResourceKind.ENDPOINT, "e")
STEP = ApplyStep(number=1, act=StepAct.CREATE, key=KEY, operation="CreateEndpoint")
FILE = FoundFile(name="m.tar.gz", size_bytes=2000)
UPLOAD = ApplyStep(
    number=2,
    act=StepAct.UPLOAD,
    key=ResourceKey(ResourceKind.ARTIFACT, "s3://b/k/"),
    file=UploadedFile("m.tar.gz", "b", (ObjectOrder(key="k/m.tar.gz", files=(FILE,)),)),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fruits").mkdir()
    (tmp_path / "fruits" / "model.bin").write_bytes(b"weights")
    return tmp_path


def new_town() -> Iterator[TownAws]:
    town = Town()
    yield TownAws(town)
    town.close()


@pytest.fixture
def aws() -> Iterator[TownAws]:
    yield from new_town()


def written(aws: TownAws) -> str:
    return document_text(build_document(observed_state(aws, lambda _: True, ROLE)))


@pytest.mark.slow
@cases(
    "texts, prune",
    case("everything is created", [SHOP], False),
    case("each kind changes and goes", [SHOP, LATER], True),
)
def test_an_apply_after_a_kill_at_any_write_comes_to_the_same(
    texts: list[str], prune: bool, folder: Path, pytestconfig: pytest.Config
) -> None:
    """Killed once a write took effect: killed before the next one leaves the same behind."""
    *before, text = texts

    def ended_at(number: int | None) -> tuple[str, int]:
        for aws in new_town():
            for earlier in before:
                apply(aws, earlier, folder)
            aws.writes.clear()
            aws.kill_at, aws.after = number, True
            try:
                apply(aws, text, folder, prune=prune)
                assert number is None
            except Killed:
                aws.kill_at = None
                apply(aws, text, folder, prune=prune)
            assert described(difference(aws, text, folder, prune=prune)) == []
            return written(aws), len(aws.writes)
        raise AssertionError

    whole, num_writes = ended_at(None)
    assert num_writes > 15
    for number in numbers(pytestconfig, num_writes):
        assert ended_at(number)[0] == whole, f"killed at write {number}"


def test_a_second_apply_does_nothing(aws: TownAws, folder: Path) -> None:
    apply(aws, SHOP, folder)
    aws.writes.clear()
    assert apply(aws, SHOP, folder).steps == ()
    assert aws.writes == []


class Seen:
    """The written lines, with a manual clock."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.written: list[str] = []
        self.now = 0.0
        self.progress = TerminalProgress(
            is_terminal=is_terminal, write=self.written.append, now=lambda: self.now
        )

    def statuses(self, *seen: tuple[float, str]) -> str:
        for at, status in seen:
            self.now = at
            self.progress.report_wait(KEY, status)
        return "".join(self.written)


def test_elsewhere_each_status_is_a_line_and_one_every_ten_seconds() -> None:
    seen = Seen(is_terminal=False)
    seen.progress.report_start(STEP)
    text = seen.statuses((0, "Creating"), (1, "Creating"), (12, "Creating"), (13, "InService"))
    assert text == (
        "  endpoint e Creating (0 s)\n  endpoint e Creating (12 s)\n  endpoint e InService (13 s)\n"
    )


def test_on_a_terminal_one_line_shows_what_is_waited_for_and_is_cleared() -> None:
    seen = Seen(is_terminal=True)
    seen.progress.report_start(STEP)
    seen.statuses((0, "Creating"), (3, "Creating"))
    assert seen.written[-1] == "  e Creating 3 s"
    seen.progress.report_end(AppliedStep(step=STEP, end=AppliedEnd.DONE, seconds=3.0))
    assert seen.written[-2:] == ["\r" + " " * 16 + "\r", "created endpoint e (3.0 s)\n"]


@cases(
    "is_terminal, text",
    case("in the line of a terminal at once", True, "  m.tar.gz 25 % of 2 kB 1 s"),
    case("not at once elsewhere", False, ""),
)
def test_how_far_an_upload_is(is_terminal: bool, text: str) -> None:
    seen = Seen(is_terminal=is_terminal)
    seen.progress.report_start(UPLOAD)
    seen.now = 1
    seen.progress.report_sent(UPLOAD, 500)
    assert "".join(seen.written) == text


def test_elsewhere_a_long_upload_is_a_line_every_ten_seconds() -> None:
    seen = Seen(is_terminal=False)
    seen.progress.report_start(UPLOAD)
    for seen.now in range(25):
        seen.progress.report_sent(UPLOAD, 50)
    seen.progress.report_end(AppliedStep(step=UPLOAD, end=AppliedEnd.DONE, seconds=25.0))
    assert "".join(seen.written) == (
        "  artifact s3://b/k/m.tar.gz 28 % of 2 kB (10 s)\n"
        "  artifact s3://b/k/m.tar.gz 52 % of 2 kB (20 s)\n"
        "uploaded s3://b/k/m.tar.gz (25.0 s)\n"
    )


@cases(
    "end, reason, text",
    case("failed", AppliedEnd.FAILED, "no room", "create endpoint e: no room\n"),
    case(
        "changed by others: planned again",
        AppliedEnd.CONFLICT,
        "Cannot create",
        "create endpoint e: changed meanwhile\n",
    ),
    case("not tried: its need is named", AppliedEnd.SKIPPED, "it needs m", ""),
)
def test_a_step_that_is_not_done(end: AppliedEnd, reason: str, text: str) -> None:
    seen = Seen(is_terminal=False)
    seen.progress.report_end(AppliedStep(step=STEP, end=end, reason=reason))
    assert "".join(seen.written) == text


@cases(
    "before, after, found",
    case("none", {"a": 1}, {"a": 1}, []),
    case(
        "the innermost fields",
        {"a": {"b": 1, "c": 2}},
        {"a": {"b": 2}},
        [FieldChange("a.b", 1, 2), FieldChange("a.c", 2, ABSENT)],
    ),
    case(
        "items by their name, whatever their order",
        {"v": [{"VariantName": "x", "n": 1}, {"VariantName": "y"}]},
        {"v": [{"VariantName": "y"}, {"VariantName": "x", "n": 2}]},
        [FieldChange("v[x].n", 1, 2)],
    ),
    case(
        "dimensions by name",
        {},
        {"d": [{"Name": "n", "Value": "v"}]},
        [FieldChange("d[n]", ABSENT, "v")],
    ),
    case("a list", {"l": [1]}, {"l": [1, 2]}, [FieldChange("l", [1], [1, 2])]),
)
def test_changes(before: object, after: object, found: list[FieldChange]) -> None:
    assert changes(before, after) == found


def test_fields_values_and_sizes_are_short() -> None:
    assert short_field("Specification.Container.Environment.A") == "Environment.A"
    assert short_field("ProductionVariants[one].InstanceType") == (
        "ProductionVariants[one].InstanceType"
    )
    assert value_text({"a": "x" * 100}).endswith("...")
    assert [size_text(it) for it in (999, 1000, 2_500_000, 3e9)] == [
        "999 B",
        "1 kB",
        "2 MB",
        "3.0 GB",
    ]
