"""`hostelry audit`: list, verify and export the audit trail, also while the platform is down."""

import gzip
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.audit.chain import ChainHead, TrailLine
from hostelry.audit.check import ChainCheck
from hostelry.audit.export import ExportedFile, split_files
from hostelry.audit.lookup import ATTRIBUTES, TrailFilter, is_wanted, read_event
from hostelry.audit.record import format_time
from hostelry.base.clock import SystemClock
from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.files import write_whole
from hostelry.base.json import decode
from hostelry.base.printable import one_line
from hostelry.cli.control_requests import SilentProcessError, control_answer
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.control.audit_opening import StoredTrail, read_stored_trail

DEFAULT_LIMIT = 50
MAX_DIGITS = 6
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SinceOption = Annotated[str, typer.Option(help="Only records of this time, for example 2h or 7d.")]
AccountOption = Annotated[str, typer.Option(help="Only records of this account.")]
audit = typer.Typer(help="List, verify and export the audit log.", no_args_is_help=True)


@audit.callback()
def _group() -> None:
    """The audit log: who did what, from where, and with what outcome."""


@audit.command("list")
def list_(
    attribute: Annotated[
        str,
        typer.Option("--by", help=f"NAME=VALUE, with a NAME of {', '.join(ATTRIBUTES)}."),
    ] = "",
    since: SinceOption = "",
    account: AccountOption = "",
    management: Annotated[
        bool, typer.Option("--management", help="Without invocations and messages.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of records.")] = DEFAULT_LIMIT,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the newest records, newest first.

    Example: hostelry audit list --since 1d --by EventName=DeleteEndpoint
    """
    wanted = _build_filter(attribute, since, account, only_management=management)
    found: list[TrailLine] = []
    with _open(home) as stored:
        for line in stored.reader.read_backwards(None, wanted.sources):
            if is_wanted(line, wanted):
                found.append(line)
            if len(found) >= limit:
                break
    if as_json:
        print_json([decode(bytes(it.event), dict[str, Any]) for it in found])
        return
    for line in found:
        typer.echo(describe_line(line))


def describe_line(line: TrailLine) -> str:
    """One line of text about a record."""
    event = read_event(line)
    if event is None:
        return f"{format_time(int(line.at))}  {line.number}  {line.source}"
    names = " ".join(it.ARN.rpartition(":")[2] for it in event.resources)
    outcome = event.error_code or "ok"
    who = event.userIdentity.name or event.userIdentity.arn or "-"
    text = f"{line.account}  {who}  {event.eventName}  {names or '-'}  {outcome}"
    return f"{format_time(int(line.at))}  {one_line(text)}"


@audit.command()
def verify(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Verify that no record was edited, removed, repeated, reordered or cut off.

    Exit code 1 if one was. The output names each place.

    Example: hostelry audit verify
    """
    noted = _ask_head(home)
    with _open(home) as stored:
        heads = stored.heads if noted is None else (*stored.heads, noted)
        check = ChainCheck(stored.key, stored.anchor, heads)
        for place, lines in stored.reader.read_forwards():
            check.begin_file()
            for number, line in enumerate(lines, start=1):
                check.take(line, f"{place}:{number}")
        check.finish()
    if as_json:
        print_json(
            {
                "records": check.num_records,
                "head": check.head.number,
                "first": (stored.anchor.head.number if stored.anchor else 0) + 1,
                "num_problems": check.num_problems,
                "problems": check.problems,
            }
        )
    else:
        for problem in check.problems:
            typer.echo(f"{problem.kind:10} {problem.place}: {one_line(problem.text)}")
        typer.echo(_summarize(check, stored))
    if check.num_problems:
        raise typer.Exit(1)


def _summarize(check: ChainCheck, stored: StoredTrail) -> str:
    text = f"{check.num_records} records, the newest is {check.head.number}"
    if stored.anchor is not None:
        text += f". Records up to {stored.anchor.head.number} were removed: {stored.anchor.reason}"
    if check.num_problems:
        return f"{text}. {check.num_problems} problems: this trail is not as it was written."
    return f"{text}. No record was changed or removed otherwise."


@audit.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Folder to write the files to.")],
    since: SinceOption = "",
    account: AccountOption = "",
    zipped: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the records as CloudTrail's files, one per account, region and hour.

    Example: hostelry audit export ./trail --since 7d --gzip
    """
    wanted = _build_filter("", since, account, only_management=False)
    files = records = 0
    with _open(home) as stored:
        for file in split_files(_iterate(stored, wanted)):
            _write(folder, file, zipped=zipped)
            files, records = files + 1, records + file.num_records
    if as_json:
        print_json({"folder": str(folder), "files": files, "records": records})
    else:
        typer.echo(f"{records} records in {files} files below {folder}.")


def _iterate(stored: StoredTrail, wanted: TrailFilter) -> Iterator[TrailLine]:
    """The wanted records, oldest first."""
    for _, lines in stored.reader.read_forwards():
        for line in lines:
            try:
                record = decode(line, TrailLine)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue  # a seal, or a line that `verify` reports
            if is_wanted(record, wanted):
                yield record


def _write(folder: Path, file: ExportedFile, *, zipped: bool) -> None:
    path = folder / (f"{file.path}.gz" if zipped else file.path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = file.build()
    write_whole(path, gzip.compress(content, mtime=0) if zipped else content, durable=False)


def _build_filter(
    attribute: str, since: str, account: str, *, only_management: bool
) -> TrailFilter:
    """The filter of options. Raises UsageError."""
    name, _, value = attribute.partition("=")
    if attribute and (name not in ATTRIBUTES or not value):
        raise UsageError(f"--by {attribute}: expected NAME=VALUE, with {', '.join(ATTRIBUTES)}")
    return TrailFilter(
        account=account,
        since=SystemClock().now() - _parse_age(since) if since else None,
        attribute=name,
        value=value,
        sources=frozenset({value} if name == "EventSource" else ()),
        only_management=only_management,
    )


def _parse_age(text: str) -> float:
    """Convert a text like 15m to seconds. Raises UsageError."""
    number, unit = text[:-1], UNITS_S.get(text[-1:])
    is_number = number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS
    if unit is None or not is_number or not int(number):
        raise UsageError(f"--since {text}: expected a number and s, m, h or d, for example 12h")
    return float(int(number) * unit)


def _open(home: Path | None) -> AbstractContextManager[StoredTrail]:
    place = home_at(home)
    config, credentials = load_home(place)
    if config.is_gateway_host:
        raise TerminalError(f"{place.root} is a host of gateways: control's host has the audit log")
    return read_stored_trail(place, config, credentials)


def _ask_head(home: Path | None) -> ChainHead | None:
    """The newest record, as control knows it. None while control does not run."""
    config, credentials = load_home(home_at(home))
    try:
        found = control_answer(config, credentials, "/internal/audit/head")
    except SilentProcessError:
        return None
    return ChainHead(int(found["number"]), str(found["digest"]))
