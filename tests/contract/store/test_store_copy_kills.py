"""A copy to a home that is killed before each of its writes: the home is whole, or is refused."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.contract.messages.test_message_tables import delivery
from tests.contract.store.test_store_copy import a_home, act, copied, fill, opened_trail, samples
from tests.selection import runs_all

from hostelry.base.errors import TerminalError
from hostelry.control.store_transfer import copy_store
from hostelry.home.home import Home, UpConfig, load_credentials
from hostelry.messaging.deliveries import Deliveries
from hostelry.messaging.tables import MessageTables
from hostelry.processes.start import check_start_store
from hostelry.store import sqlite
from hostelry.store.database import open_database

# Copies to one home after another. The Nth copy is killed before its Nth write. Prints how each
# copy ended. The first copy that is not killed is the last one.
KILLER = """
import os, shutil, sys
import sqlalchemy as sa
from hostelry.control.store_transfer import copy_store
from hostelry.store import sqlite, upgrade

sqlite.PRAGMAS += ("PRAGMA synchronous=OFF",)
os.fsync = lambda descriptor: None
source, template, numbers = sys.argv[1], sys.argv[2], range(0, 200, int(sys.argv[3]))

def copy_killed_at(number, home):
    left = number
    def count(path):
        nonlocal left
        path = os.fsdecode(path)
        if not path.startswith(home) or "/store-copy/" in path:
            return  # the scratch database is no one's
        if left == 0:
            os.kill(os.getpid(), 9)
        left -= 1
    def counting(name, position):
        real = getattr(os, name)
        def call(*arguments, **options):
            folder = options.get("dir_fd")  # shutil.rmtree names files in open folders
            within = home if folder is None else os.readlink(f"/proc/self/fd/{folder}")
            count(os.path.join(within, arguments[position]))
            return real(*arguments, **options)
        setattr(os, name, call)
    for name in ("unlink", "rmdir", "mkdir"):
        counting(name, 0)
    for name in ("replace", "rename"):
        counting(name, 1)
    sa.event.listen(sa.Engine, "commit", lambda it: count(it.engine.url.database))
    copy_store(source, home, replace=True, report=lambda *_: None)
    os._exit(0)

for number in numbers:
    home = f"{template}-{number}"
    shutil.copytree(template, home)
    child = os.fork()
    if child == 0:
        copy_killed_at(number, home)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
    if code != -9:
        sys.exit(code)
"""


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not sync. The power is not cut here, so the data of a killed process survives anyway."""
    monkeypatch.setattr(sqlite, "PRAGMAS", (*sqlite.PRAGMAS, "PRAGMA synchronous=OFF"))
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def filled(home: Home, count: int) -> Home:
    """The home with records, messages, metrics and acts, all by `count`."""
    fill(home.state, count)
    with closing(open_database(home.messages)) as database:
        Deliveries(MessageTables(database)).accept([delivery(str(count))], [])
    samples(home, count)
    with opened_trail(home) as trail:
        for at in range(count):
            trail.append(act(float(at)))
    return home


def content(home: Home, scratch: Path) -> dict[str, str]:
    """Digests of all data in the home, as a copy of it shows. Raises the copy's TerminalError."""
    shutil.rmtree(scratch, ignore_errors=True)
    other = a_home(scratch)
    shutil.copy(home.credentials, other.credentials)  # of one cluster
    tables = copy_store(str(home.root), str(other.root), replace=False, report=lambda *_: None)
    return {it.name: it.digest for it in tables}


def test_a_home_is_whole_or_refused_whenever_a_copy_to_it_is_killed(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    stride = 1 if runs_all(pytestconfig) else 4
    source = filled(a_home(tmp_path / "source"), 3)
    template = filled(a_home(tmp_path / "home"), 2)
    shutil.copy(source.credentials, template.credentials)
    scratch = tmp_path / "scratch"
    before, wanted = content(template, scratch), content(source, scratch)
    assert all(before[it] != wanted[it] for it in ("records", "audit_record", "metric_part"))
    command = [sys.executable, "-c", KILLER, str(source.root), str(template.root), str(stride)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    *kills, last = done.stdout.split()
    assert set(kills) == {"-9"}
    assert last == "0"

    found: list[str] = []
    for number in range(len(kills) + 1):
        home = Home(Path(f"{template.root}-{number * stride}"))
        if why := refusal(home):
            assert f"--to {home.root}` was cut off" in why
            with pytest.raises(TerminalError, match="has part of a copy"):
                copied(home.root, scratch)
            found.append("refused")
            copied(source.root, home.root)  # again, with no word of --replace
            assert refusal(home) == ""
            assert content(home, scratch) == wanted
        else:
            whole = content(home, scratch)
            assert whole in (before, wanted)
            found.append("before" if whole == before else "wanted")
    assert found == sorted(found, key=["before", "refused", "wanted"].index)
    assert found.count("refused") * stride >= 8, (
        "the audit log, the metrics, three databases, the mark"
    )
    assert found[0] == "before"
    assert found[-1] == "wanted"


def refusal(home: Home) -> str:
    """Why `hostelry up` refuses to start on the home's own files. Empty if it starts."""
    config, credentials = UpConfig(control_port=1), load_credentials(home)
    try:
        check_start_store(home, config, None, credentials, {}, print)
    except TerminalError as error:
        return str(error)
    return ""


def test_a_home_with_part_of_a_copy_starts_on_another_store(tmp_path: Path) -> None:
    home = a_home(tmp_path / "home")
    home.cut_off_copy.touch()
    assert "has part of a copy" in refusal(home)
    other, source = UpConfig(control_port=1, store_url="x://y"), a_home(tmp_path / "source")
    with pytest.raises(TerminalError, match="a store is a path, or a URL"):
        check_start_store(home, other, None, load_credentials(home), {}, print)
    shutil.copy(source.credentials, home.credentials)
    copied(source.root, home.root)
    assert refusal(home) == ""
