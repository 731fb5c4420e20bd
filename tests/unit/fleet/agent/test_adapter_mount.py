"""Files of adapters and models for a container: linked, whole, and removable."""

import asyncio
from pathlib import Path

import pytest

from hostelry.fleet.agent.adapters import AdapterMount, find_adapter_mount
from hostelry.fleet.rules.images import LMI_RULE, ImageRules


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """An adapter as the cache keeps it: read-only folders."""
    folder = tmp_path / "cache" / "k"
    (folder / "deep").mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    (folder / "deep" / "weights").write_text("w")
    for path in (folder / "deep", folder):
        path.chmod(0o555)
    return folder


def shelf(tmp_path: Path) -> AdapterMount:
    root = tmp_path / "copy" / "adapters"
    root.mkdir(parents=True)
    return AdapterMount(root)


def test_an_adapter_is_linked_and_named_by_its_path_in_the_container(
    tmp_path: Path, files: Path
) -> None:
    place = shelf(tmp_path)
    inner = asyncio.run(place.place("es@1", files))
    assert inner.startswith("/opt/ml/models/")
    placed = place.root / Path(inner).name
    assert (placed / "deep" / "weights").samefile(files / "deep" / "weights"), "no room is used"
    assert asyncio.run(place.place("es@1", files)) == inner, "again is well"
    assert asyncio.run(place.place("../../etc", files)) != inner
    assert sorted(path.parent for path in place.root.iterdir()) == [place.root] * 2
    asyncio.run(place.remove("es@1"))
    assert not placed.exists()
    assert (files / "deep" / "weights").read_text() == "w", "the cache's files stay"
    asyncio.run(place.remove("es@1"))


def test_a_model_is_at_a_path_of_the_contracts_form(tmp_path: Path, files: Path) -> None:
    place = shelf(tmp_path)
    assert asyncio.run(place.place_model("0af", files)) == "/opt/ml/models/0af/model"
    placed = place.root / "0af" / "model"
    assert (placed / "deep" / "weights").samefile(files / "deep" / "weights")
    asyncio.run(place.place_model("0af", files))
    asyncio.run(place.remove_model("0af"))
    assert list(place.root.iterdir()) == []
    asyncio.run(place.remove_model("0af"))


def test_half_of_an_adapter_is_never_shown(tmp_path: Path, files: Path) -> None:
    place = shelf(tmp_path)
    inner = asyncio.run(place.place("es@1", files))
    placed = place.root / Path(inner).name
    placed.rename(placed.with_name(f"{placed.name}.half"))
    (place.root / f"{placed.name}.half" / "adapter_config.json").unlink()
    asyncio.run(place.place("es@1", files))
    assert (placed / "adapter_config.json").exists()
    assert [path.name for path in place.root.iterdir()] == [placed.name]


def test_a_program_sees_the_files_themselves(tmp_path: Path) -> None:
    container = ImageRules.load(None).resolve("mine:1")
    assert container is not None
    assert find_adapter_mount(container, tmp_path) == AdapterMount(tmp_path / "adapters")
    assert find_adapter_mount(LMI_RULE, tmp_path) is None
