from pathlib import Path

from hostelry.fleet.launch.copy_log import CopyLog


def test_notes_and_the_servers_own_lines_are_one_log(tmp_path: Path) -> None:
    log = CopyLog(tmp_path / "log")
    assert log.tail(5) == ""
    log.note("starting")
    with (tmp_path / "log").open("a") as server:
        server.write("one\ntwo\n")
    log.note("ended")
    assert log.tail(10) == "[agent] starting\none\ntwo\n[agent] ended"
    assert log.tail(2) == "two\n[agent] ended"
    assert log.tail(0) == ""
    assert log.tail(-1) == ""


def test_a_long_log_is_cut_to_its_end_under_the_writers_hands(tmp_path: Path) -> None:
    log = CopyLog(tmp_path / "log")
    with (tmp_path / "log").open("a") as server:
        for number in range(1000):
            server.write(f"line {number}\n")
        server.flush()
        assert not log.bound(max_bytes=10**6)
        assert log.bound(max_bytes=1000, kept_bytes=100)
        server.write("after the cut\n")
    text = (tmp_path / "log").read_text()
    assert len(text) < 1000
    assert "log cut at" in text
    assert text.endswith("line 999\nafter the cut\n")


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"\xff\xfe\x00 loaded\n" + b"x" * 10**6)
    assert len(CopyLog(tmp_path / "log").tail(1)) <= 256 * 1024


def test_a_log_that_is_gone_loses_its_notes_only(tmp_path: Path) -> None:
    log = CopyLog(tmp_path / "gone" / "log")
    log.note("a download of a copy that was deleted meanwhile")
    assert log.tail(5) == ""
    assert not log.bound()
