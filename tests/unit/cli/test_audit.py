"""`hostelry audit` on a home whose platform is down: list, verify, export."""

import gzip
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases
from tests.unit.audit.samples import OTHER, OWNER, call_event
from typer.testing import CliRunner, Result

from hostelry.audit.acts import AuditEntry
from hostelry.audit.folder import TrailFolder
from hostelry.base.clock import SystemClock
from hostelry.base.errors import UsageError
from hostelry.base.ports import free_ports
from hostelry.cli.main import app
from hostelry.control.audit_opening import open_platform_trail
from hostelry.home.home import Home, UpConfig, new_credentials, save_config, save_credentials
from hostelry.home.platform_store import platform_database

HOUR_S = 3600.0


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home with four records, the oldest of which is two days old."""
    home = Home(tmp_path_factory.mktemp("audit") / "home")
    home.make()
    (port,) = free_ports(1)
    config, keys = UpConfig(control_port=port, gateway_port=port), new_credentials(*OWNER)
    save_config(home, config)
    save_credentials(home, keys)
    now = SystemClock().now()
    with (
        closing(platform_database(home, config)) as database,
        closing(open_platform_trail(home, config, keys, database, SystemClock())) as trail,
    ):
        trail.record(call_event(1, "CreateModel", at=now - 48 * HOUR_S), now - 48 * HOUR_S)
        trail.record(call_event(2, "ListModels", OTHER, at=now - 60.0), now - 60.0)
        failed = call_event(3, "DeleteModel", at=now - 50.0, error_code="AccessDenied")
        trail.record(failed, now - 50.0)
        entry = AuditEntry(at=now, who="user ada", act="drain", target="i-1", outcome="accepted")
        trail.append(entry)
    return home


def run(home: Home, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments, "--home", str(home.root)])


def columns(result: Result) -> list[list[str]]:
    return [it.split("  ") for it in result.stdout.splitlines()]


@cases(
    "options, found",
    case("all", [], ["drain", "DeleteModel", "ListModels", "CreateModel"]),
    case("the newest", ["--limit", "1"], ["drain"]),
    case("since an hour", ["--since", "1h"], ["drain", "DeleteModel", "ListModels"]),
    case("an account's", ["--account", OTHER[0]], ["ListModels"]),
    case("by name", ["--by", "EventName=CreateModel"], ["CreateModel"]),
    case("by person", ["--by", "Username=user ada"], ["drain"]),
    case("by source", ["--by", "EventSource=hostelry.internal"], ["drain"]),
)
def test_records_are_listed_newest_first(
    home: Home, options: Sequence[str], found: list[str]
) -> None:
    result = run(home, "list", *options)
    assert [it[3] for it in columns(result)] == found, result.stderr
    shown = msgspec.json.decode(run(home, "list", "--json", *options).stdout)
    assert [it["eventName"] for it in shown] == found


def test_a_line_shows_who_did_what_with_what_outcome(home: Home) -> None:
    _, failed, *_ = columns(run(home, "list"))
    assert failed[1:] == [OWNER[0], "root", "DeleteModel", "-", "AccessDenied"]


@cases(
    "options",
    case("an unknown attribute", ["--by", "Name=x"]),
    case("no value", ["--by", "EventName"]),
    case("an age without a unit", ["--since", "15"]),
    case("no number", ["--since", "xh"]),
    case("no time", ["--since", "0h"]),
)
def test_an_invalid_option_is_refused(home: Home, options: Sequence[str]) -> None:
    assert isinstance(run(home, "list", *options).exception, UsageError)


def test_a_whole_trail_is_verified(home: Home) -> None:
    result = run(home, "verify")
    assert result.exit_code == 0, result.stdout
    assert "4 records, the newest is 4. No record was changed" in result.stdout
    shown = msgspec.json.decode(run(home, "verify", "--json").stdout)
    assert shown == {"records": 4, "head": 4, "first": 1, "num_problems": 0, "problems": []}


def test_an_edit_and_a_cut_end_are_named(home: Home) -> None:
    (path,) = TrailFolder(home.audit).list_files()
    whole = path.read_bytes()
    try:
        path.write_bytes(whole.replace(b"CreateModel", b"DeleteModel"))
        result = run(home, "verify")
        assert result.exit_code == 1
        assert f"edited     {path.name}:1: record 1 is not as" in result.stdout
        assert "1 problems: this trail is not as it was written" in result.stdout
        path.write_bytes(b"\n".join(whole.split(b"\n")[:2]) + b"\n")
        result = run(home, "verify", "--json")
        (problem,) = msgspec.json.decode(result.stdout)["problems"]
        assert problem == {
            "kind": "cut",
            "place": "after record 2",
            "text": "records 3 to 4 are missing at the end",
        }
    finally:
        path.write_bytes(whole)


@cases("options, suffix", case("plain", [], ".json"), case("zipped", ["--gzip"], ".json.gz"))
def test_records_are_exported_as_cloudtrails_files(
    home: Home, tmp_path: Path, options: Sequence[str], suffix: str
) -> None:
    folder = tmp_path / "trail"
    result = run(home, "export", str(folder), *options)
    assert result.exit_code == 0, result.stderr
    files = sorted(it for it in folder.rglob("*") if it.is_file())
    assert 3 <= len(files) <= 4, "by account, region and hour"
    assert f"4 records in {len(files)} files" in result.stdout
    names = []
    for path in files:
        parts = path.relative_to(folder).parts
        assert parts[0] == "AWSLogs"
        assert parts[2:4] == ("CloudTrail", "us-east-1")
        assert path.name.startswith(f"{parts[1]}_CloudTrail_us-east-1_")
        assert path.name.endswith(suffix)
        content = path.read_bytes()
        plain = gzip.decompress(content) if options else content
        names += [it["eventName"] for it in msgspec.json.decode(plain)["Records"]]
    assert sorted(names) == ["CreateModel", "DeleteModel", "ListModels", "drain"]
    again = run(home, "export", str(folder), *options)
    assert again.exit_code == 0
    assert sorted(it for it in folder.rglob("*") if it.is_file()) == files
