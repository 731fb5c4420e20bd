"""Packages of models' requirements.txt, installed by an agent with the real uv and a real index."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.integration.framework_rig import runtimes_of_tests, runtimes_with

from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import VARIABLE, runtime_python
from hostelry.containers.predictive.requirements import SHARED
from hostelry.fleet.agent.code_packages import CodePackages, CodePlace, Flight, Listener
from hostelry.fleet.agent.package_store import PackageStore
from hostelry.fleet.records import CopyFolder, InstanceFolder
from hostelry.fleet.rules.code_packages import PackageLimits

pytestmark = pytest.mark.integration
RUNTIME = "sklearn-1.2"


class Instance:
    """An instance's folder, with copies that have code. `notes` are the lines of their logs."""

    def __init__(self, root: Path) -> None:
        self.folder = InstanceFolder(root / "instances" / "i-1")
        self.folder.root.mkdir(parents=True, exist_ok=True)
        self.notes: list[str] = []
        self.operator = {**os.environ, VARIABLE: str(runtimes_of_tests())}
        self.limits = PackageLimits()

    def copy(self, name: str, requirements: str) -> CodePlace:
        folder = CopyFolder(self.folder.copies / name)
        (folder.model / "code").mkdir(parents=True)
        (folder.model / "code" / "requirements.txt").write_text(requirements)
        return CodePlace(folder, {})

    def provide(self, *codes: CodePlace) -> list[dict[str, str] | BaseException]:
        async def play() -> Sequence[dict[str, str] | BaseException]:
            packages = CodePackages(self.folder, self.operator, self.limits)
            given = [
                packages.provide(RUNTIME, code, self.notes.append, lambda _: None) for code in codes
            ]
            return await asyncio.gather(*given, return_exceptions=True)

        return list(asyncio.run(play()))

    def sets(self) -> list[Path]:
        return [it for it in self.folder.packages.glob("*") if not it.name.startswith(".")]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    runtimes_with("sklearn:1.2")
    return Instance(tmp_path)


def version_in(site: str, module: str) -> str:
    """The version that the runtime imports with these packages first on its path."""
    python = runtime_python(runtimes_of_tests(), RUNTIME)
    code = f"import {module}; print({module}.__version__)"
    done = subprocess.run(
        [python, "-c", code], env={"PYTHONPATH": site}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_copy_that_waits_later_gets_the_steps_so_far() -> None:
    flight, notes, waits = Flight(0.0), list[str](), list[str]()
    listener = Listener(notes.append, waits.append)
    flight.say("packages: six==1.15.0")
    flight.add(listener)
    flight.say("done")
    flight.report(listener)
    assert notes == ["requirements.txt: packages: six==1.15.0", "requirements.txt: done"]
    assert waits[0].endswith(": done")


def test_copies_that_start_at_once_share_one_installation(instance: Instance) -> None:
    copies = [instance.copy(f"c-{number}", "six==1.15.0\n") for number in range(3)]
    found = instance.provide(*copies)
    [site] = {str(it[SHARED]) for it in found if isinstance(it, dict)}
    assert version_in(site, "six") == "1.15.0"
    assert len(instance.sets()) == 1
    assert sum("packages: six==1.15.0" in it for it in instance.notes) == 3, "each log has it"
    for path in Path(site).rglob("*"):
        assert not path.stat().st_mode & 0o222, f"{path} can be written"
    later = instance.provide(instance.copy("c-9", "six==1.15.0\n"))
    assert later == [{SHARED: site}]
    locks = list(instance.folder.package_locks.glob("*.txt"))
    assert len(locks) == 1
    assert "--hash=sha256:" in locks[0].read_text()


def test_what_the_runtime_has_already_is_not_installed(instance: Instance) -> None:
    assert instance.provide(instance.copy("c-1", "numpy\n")) == [{SHARED: ""}]
    assert instance.sets() == []


@cases(
    "line, words",
    case("a path", "./local", "installed by this copy itself"),
    case("an index", "--index-url https://example.org/simple", "by this copy itself"),
)
def test_other_lines_are_left_to_the_copy(instance: Instance, line: str, words: str) -> None:
    assert instance.provide(instance.copy("c-1", f"six\n{line}\n")) == [{}]
    assert any(words in it for it in instance.notes)


def test_a_package_that_is_not_there_fails_with_the_tools_last_lines(instance: Instance) -> None:
    [failure] = instance.provide(instance.copy("c-1", "no-such-package-at-all==9\n"))
    assert isinstance(failure, TerminalError)
    assert "requirements.txt cannot be installed" in str(failure)
    assert "no-such-package-at-all" in str(failure)
    assert instance.sets() == []


def test_a_set_that_takes_too_much_room_fails_and_leaves_nothing(instance: Instance) -> None:
    instance.limits = PackageLimits(free_bytes=1 << 60)
    [failure] = instance.provide(instance.copy("c-1", "six==1.15.0\n"))
    assert isinstance(failure, TerminalError)
    assert "is full" in str(failure)
    assert list(instance.folder.packages.glob("*")) == []


KILLED = """
import sys
from pathlib import Path
from tests.integration.test_code_packages import Instance

instance = Instance(Path(sys.argv[1]))
instance.notes = type("Notes", (list,), {"append": lambda _, line: print(line, flush=True)})()
instance.provide(instance.copy("c-killed", "six==1.15.0\\n"))
"""


def test_a_kill_in_the_middle_leaves_no_half_set(instance: Instance, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as agent:
        ending = threading.Timer(60, lambda: os.killpg(agent.pid, signal.SIGKILL))
        ending.start()
        assert agent.stdout is not None
        for line in agent.stdout:
            if "packages: six" in line:  # it is known what to install, and nothing is yet
                agent.send_signal(signal.SIGKILL)
                break
        ending.cancel()
    assert instance.sets() == []
    [found] = instance.provide(instance.copy("c-1", "six==1.15.0\n"))
    assert isinstance(found, dict)
    assert version_in(found[SHARED], "six") == "1.15.0"
    store = PackageStore(instance.folder, instance.limits)
    own = store.begin()
    (store.folder / ".making-late").mkdir()  # the killed agent's installer was still writing
    for _ in range(100):
        store.remove_unused(0.0)
        left = list(store.folder.glob(".making-*"))
        if left == [own]:
            break
        time.sleep(0.1)
    assert left == [own]


def test_a_set_that_was_changed_is_installed_again(instance: Instance) -> None:
    [found] = instance.provide(instance.copy("c-1", "six==1.15.0\n"))
    assert isinstance(found, dict)
    module = Path(found[SHARED]) / "six.py"
    module.parent.chmod(0o755)
    module.unlink()
    [again] = instance.provide(instance.copy("c-2", "six==1.15.0\n"))
    assert again == found
    assert version_in(found[SHARED], "six") == "1.15.0"
