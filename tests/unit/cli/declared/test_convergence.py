"""An application that is killed at any of its writes, and the one after it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.selection import numbers
from tests.unit.cli.declared.documents import LATER, SHOP
from tests.unit.cli.declared.rig import ROLE, Killed, TownAws, apply, described, difference
from tests.unit.reconcile.samples import Town

from hostelry.cli.declared.export import document_text, exported
from hostelry.cli.declared.observation import observed_state


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
    return document_text(exported(observed_state(aws, lambda _: True, ROLE)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "prune"),
    [
        pytest.param([SHOP], False, id="everything is created"),
        pytest.param([SHOP, LATER], True, id="each kind changes and goes"),
    ],
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
