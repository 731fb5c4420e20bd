import shutil
from collections.abc import Callable
from typing import Any

from hostelry.fleet.launch.copy_log import CopyLog
from hostelry.logs.collector import LOOK_BYTES
from hostelry.logs.store import LogStore

NOW = 1_700_000_000.0
Write = Callable[..., None]


def test_lines_become_events_at_the_files_last_write(home: Any, write: Write) -> None:
    write(home.copy(), "one\ntwo\n", NOW - 3)
    home.collector().look(NOW)
    group = home.store.groups(home.copy("c-2").load_source().scope, limit=9)[0]
    stream = home.store.streams(group, limit=9)[0]
    assert (group.name, stream.name) == ("/aws/sagemaker/InferenceComponents/ic", "main/i-1/c-1")
    assert stream.first_ms == stream.last_ms == (NOW - 3) * 1000
    assert home.messages() == ["one", "two"]


def test_lines_have_no_path_of_the_machine(home: Any, write: Write) -> None:
    folder = home.copy()
    write(folder, f'File "{folder.model}/code/inference.py", line 1\n{home.root}/images.toml\n')
    home.collector().look(NOW)
    assert home.messages() == ['File "/opt/ml/model/code/inference.py", line 1', "images.toml"]


def test_a_model_endpoints_stream_is_the_instance(home: Any, write: Write) -> None:
    write(home.copy(component=None), "one\n")
    home.collector().look(NOW)
    assert home.messages("/aws/sagemaker/Endpoints/e") == ["one"]
    assert [stream.name for _, stream in home.store.find_named("c-1")] == ["main/i-1"]


def test_a_line_is_stored_once_whatever_is_started_again(home: Any, write: Write) -> None:
    folder = home.copy()
    for number in range(5):
        write(folder, f"line {number}\n")
        home.collector().look(NOW)  # a new process each time
        home.collector().look(NOW)
    assert home.messages() == [f"line {number}" for number in range(5)]


def test_a_part_of_a_line_waits_until_the_file_is_idle(home: Any, write: Write) -> None:
    folder, collector = home.copy(), home.collector()
    write(folder, "10%")
    collector.look(NOW)
    assert home.messages() == []
    collector.look(NOW + 3)
    assert home.messages() == ["10%"]


def test_the_last_lines_of_a_removed_copy_are_kept(home: Any, write: Write) -> None:
    folder, collector = home.copy(), home.collector()
    write(folder, "starts\n")
    collector.look(NOW)
    write(folder, "Traceback\nValueError: no")
    folder.remove()
    assert not folder.root.exists()
    home.collector().look(NOW)
    assert home.messages() == ["starts", "Traceback", "ValueError: no"]
    home.collector().look(NOW)
    assert not list((home.root / "instances" / ".ended").iterdir())
    assert home.store.positions() == {}


def test_a_copy_that_was_never_looked_at_is_not_missed(home: Any, write: Write) -> None:
    folder = home.copy()
    write(folder, "starts and dies\n")
    folder.remove()
    shutil.rmtree(home.root / "instances" / "i-1")
    home.collector().look(NOW)
    assert home.messages() == ["starts and dies"]


def test_a_log_that_was_cut_goes_on_where_it_was_read(home: Any, write: Write) -> None:
    folder, collector = home.copy(), home.collector()
    write(folder, "".join(f"line {number}\n" for number in range(100)))
    collector.look(NOW)
    assert CopyLog(folder.log).bound(max_bytes=100, kept_bytes=50)
    write(folder, "after\n")
    collector.look(NOW)
    assert CopyLog(folder.log).bound(max_bytes=100, kept_bytes=50)
    write(folder, "after all\n")
    collector.look(NOW)
    assert home.messages() == [*(f"line {number}" for number in range(100)), "after", "after all"]


def test_what_was_cut_before_it_was_read_is_counted(home: Any, write: Write) -> None:
    folder, collector = home.copy(), home.collector()
    write(folder, "first\n")
    collector.look(NOW)
    write(folder, "x" * 1000 + "\nlast line\n")
    CopyLog(folder.log).bound(max_bytes=100, kept_bytes=10)
    collector.look(NOW)
    first, note, last = home.messages()
    assert (first, last) == ("first", "last line")
    assert note.startswith("[hostelry] 1001 bytes of output before this line are lost")


def test_a_log_that_its_copy_cut_is_read_from_its_start(home: Any, write: Write) -> None:
    folder, collector = home.copy(), home.collector()
    write(folder, "a long first line\n")
    collector.look(NOW)
    folder.log.write_text("")
    write(folder, "new\n")
    collector.look(NOW)
    assert home.messages() == ["a long first line"]  # its agent may be cutting it
    collector.look(NOW + 3)
    assert home.messages()[1:] == [
        "[hostelry] this log was cut by the copy itself; it follows as it is",
        "new",
    ]


def test_a_flood_takes_its_turn(home: Any, write: Write) -> None:
    flood, quiet, collector = home.copy(), home.copy("c-2", "quiet"), home.collector()
    write(flood, ("x" * 1023 + "\n") * 2048)
    write(quiet, "still here\n")
    collector.look(NOW)
    assert home.messages("/aws/sagemaker/InferenceComponents/quiet") == ["still here"]
    assert len(home.messages()) == LOOK_BYTES // 1024
    for _ in range(10):
        collector.look(NOW)
    assert len(home.messages()) == 2048


def test_a_store_that_fails_loses_nothing(home: Any, write: Write) -> None:
    folder = home.copy()
    write(folder, "one\n")
    broken = LogStore(home.root / "no" / "folder" / "logs.db")
    collector = type(home)(home.root, broken).collector()
    collector.look(NOW)
    write(folder, "two\n")
    folder.remove()
    collector.look(NOW)
    (home.root / "no" / "folder").mkdir(parents=True)
    collector.look(NOW)
    assert type(home)(home.root, broken).messages() == ["one", "two"]
    broken.close()


def test_a_group_deleted_under_a_running_copy_comes_back(home: Any, write: Write) -> None:
    folder, collector = home.copy(), home.collector()
    write(folder, "one\n")
    collector.look(NOW)
    group = home.store.groups(folder.load_source().scope, limit=9)[0]
    home.store.delete_group(group)
    write(folder, "two\n")
    collector.look(NOW)
    assert home.messages() == ["two"]
