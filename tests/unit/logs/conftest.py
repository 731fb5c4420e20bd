"""A home's folder of instances with copies that print, and the store that collects the output."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hostelry.base.shown_paths import ShownPaths
from hostelry.domain.log_source import LogSource
from hostelry.domain.scope import Scope
from hostelry.fleet.records import CopyFolder, InstanceFolder
from hostelry.logs.collector import Collector, LogFiles
from hostelry.logs.store import BEGIN, END, LogStore

HERE = Scope("123456789012", "us-west-2")
NOW = 1_700_000_000.0


@dataclass(frozen=True)
class Home:
    """The folder of instances, and changes of it."""

    root: Path
    store: LogStore

    def copy(self, copy_id: str = "c-1", component: str | None = "ic") -> CopyFolder:
        """A copy's folder, and the source of its log."""
        folder = InstanceFolder(self.root / "instances" / "i-1").copy(copy_id)
        folder.root.mkdir(parents=True)
        folder.save_source(
            LogSource(
                scope=HERE,
                endpoint_name="e",
                variant_name="main",
                component_name=component,
                instance_id="i-1",
                copy_id=copy_id,
            )
        )
        return folder

    def collector(self) -> Collector:
        """A collector, as a new control process makes it."""
        instances = self.root / "instances"
        shown = ShownPaths(str(instances), [str(self.root)]).text
        return Collector(self.store, LogFiles(instances).find, shown)

    def messages(self, group: str = "/aws/sagemaker/InferenceComponents/ic") -> list[str]:
        """Every stored message in the group's streams."""
        found = self.store.group(HERE, group)
        streams = [] if found is None else self.store.streams(found, limit=100)
        return [
            event.message
            for stream in streams
            for event in self.store.read_forwards(stream, BEGIN, END, 10**6)
        ]


def write_lines(folder: CopyFolder, text: str, at: float = NOW) -> None:
    """Append lines to the copy's log, with `at` as its time."""
    with folder.log.open("a") as file:
        file.write(text)
    os.utime(folder.log, (at, at))


@pytest.fixture
def write() -> Callable[..., None]:
    """`write(folder, text, at)` appends to a copy's log."""
    return write_lines


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    (tmp_path / "instances").mkdir()
    store = LogStore(tmp_path / "logs.db")
    yield Home(tmp_path, store)
    store.close()
