"""Move an endpoint from one cell to another. Each step may be repeated.

1. The endpoint's resources are exported from the old cell.
2. If the cells have different object stores, the objects that copies read are copied.
3. The document is applied in the new cell. The move waits until all resources are InService.
4. The table of cells sends requests to the new cell.
5. When the old endpoint has no request under way, the endpoint is removed.
"""

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import typer
from s3transfer.manager import TransferManager

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError, UsageError
from hostelry.cells.assignment_file import (
    AccountTable,
    ApartTable,
    AssignmentDocument,
    CellTable,
    check_document,
    read_document,
    write_document,
)
from hostelry.cli.artifacts.upload import make_bucket
from hostelry.cli.control_requests import control_answer
from hostelry.cli.declared.application import Application, add_uploads
from hostelry.cli.declared.apply import TerminalProgress
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.declared.expansion import wanted_state
from hostelry.cli.declared.export import build_document, document_text
from hostelry.cli.declared.observation import ObservedState, observed_state
from hostelry.cli.declared.resource import ResourceKind
from hostelry.cli.declared.source import parse_sources
from hostelry.cli.home_option import load_home
from hostelry.cli.models.rm import remove_named
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, Home, UpConfig

REREAD_S = 2.0  # routers read the table again within this time
LOOK_EVERY_S = 1.0
PATIENCE_S = 600.0  # no request may take longer
BUCKET = "hostelry-applied"
# Members of a document whose objects copies read. Other members name places to write to.
READ_BY_COPIES = frozenset(
    {
        "ModelDataUrl", "ArtifactUrl", "S3Uri", "OPTION_MODEL_ID", "HF_MODEL_ID",
        "SAGEMAKER_SUBMIT_DIRECTORY",
    }
)  # fmt: skip
SCHEME = "s3://"
BLOCK_BYTES = 8 * 1024 * 1024
ANSWER_TIMEOUT_S = 3.0


class MoveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint, and the cell in `file` that gets it. `keep` leaves the old endpoint."""

    endpoint: str
    cell: str
    file: Path
    keep: bool


class CellEnd(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two platforms of a move."""

    home: Home
    config: UpConfig
    credentials: Credentials

    def aws(self) -> AwsAtPlatform:
        """The APIs of the platform."""
        return AwsAtPlatform(self.config, self.credentials)

    def s3(self) -> Any:
        """A client of the platform's object store."""
        return aws_client("s3", self.config, self.credentials, tries=3, read_timeout_s=60.0)

    def observed(self) -> ObservedState:
        """The platform's present resources."""
        return observed_state(self.aws(), lambda _: True, self.credentials.role_arn)


def move_endpoint(order: MoveOrder, old_home: Home, new_home: Home) -> None:
    """Carry out all steps. Raises TerminalError for the first step that fails."""
    table = read_document(order.file)
    old, new = end_at(old_home), end_at(new_home)
    check_move(order, table, old, new)
    observed = old.observed()
    if order.endpoint not in list_endpoints(observed):
        moved_before(order, table, new)
        return
    document = build_document(observed, [order.endpoint])
    check_queue(document, order)
    if old.config.s3_url != new.config.s3_url:
        copy_artifacts(document, old.s3(), new.s3())
    apply_document(document, order.endpoint, new)
    apart = list_new_resources(document, order, new)
    changed = move_resources_apart(read_document(order.file), apart)
    check_document(changed, order.file)
    write_document(order.file, changed)
    typer.echo(f"{order.file}: requests to {order.endpoint} go to cell {order.cell}", err=True)
    if order.keep:
        typer.echo(f"moved; the old endpoint stays in {old.home.root}")
        return
    time.sleep(REREAD_S)
    wait_until_unused(lambda: in_flight(old, order.endpoint), time.sleep, monotonic_s)
    remove_named(old.home, [order.endpoint], yes=True, with_data=False, as_json=False)
    typer.echo(f"moved {order.endpoint} to cell {order.cell}")


def end_at(home: Home) -> CellEnd:
    """The platform of a home."""
    config, credentials = load_home(home)
    return CellEnd(home=home, config=config, credentials=credentials)


def check_move(order: MoveOrder, table: AssignmentDocument, old: CellEnd, new: CellEnd) -> None:
    """Raise TerminalError if the endpoint cannot be moved as ordered."""
    if order.cell not in table.cells:
        known = ", ".join(table.cells)
        raise TerminalError(f"{order.file} has no cell {order.cell}; there are {known}")
    if old.home.root.resolve() == new.home.root.resolve():
        raise UsageError(f"--from-home and --to-home are both {old.home.root}")
    for what, pair in {
        "accounts": (old.credentials.account_id, new.credentials.account_id),
        "regions": (old.credentials.region, new.credentials.region),
        "access keys": (old.credentials.access_key_id, new.credentials.access_key_id),
    }.items():
        if pair[0] != pair[1]:
            raise TerminalError(
                f"the cells have different {what}, {pair[0]} and {pair[1]}, so that clients would"
                " need other keys: start a cell with the credentials.json of the other"
            )


def check_queue(document: Mapping[str, Any], order: MoveOrder) -> None:
    """Raise TerminalError if queued requests would be left behind."""
    if "AsyncInferenceConfig" in document["endpoints"][order.endpoint] and not order.keep:
        raise TerminalError(
            f"{order.endpoint} is an asynchronous endpoint, and what waits in its queue stays in"
            " the old cell: move it with --keep, and remove it there once `hostelry jobs list`"
            " shows none of its requests"
        )


def list_endpoints(observed: ObservedState) -> list[str]:
    """The names of the endpoints that exist and are not being deleted."""
    return [it.key.name for it in observed.of(ResourceKind.ENDPOINT) if it.status != "Deleting"]


def moved_before(order: MoveOrder, table: AssignmentDocument, new: CellEnd) -> None:
    """Report that the endpoint has moved before. Raises TerminalError if it does not exist."""
    assigned = [
        name for entry in table.apart if entry.cell == order.cell for name in entry.endpoints
    ]
    if order.endpoint not in list_endpoints(new.observed()):
        raise TerminalError(f"neither cell has an endpoint {order.endpoint}")
    if order.endpoint not in assigned and not is_own_cell(table, order, new):
        raise TerminalError(
            f"cell {order.cell} has an endpoint {order.endpoint} of its own and the other cell has"
            f" none; name it below [[apart]] in {order.file} if its requests shall go there"
        )
    typer.echo(f"{order.endpoint} is in cell {order.cell} already")


def is_own_cell(table: AssignmentDocument, order: MoveOrder, new: CellEnd) -> bool:
    """Whether the account's resources are in the new cell by default."""
    account = new.credentials.account_id
    return any(it.id == account and it.cell == order.cell for it in table.accounts)


def apply_document(document: Mapping[str, Any], endpoint: str, new: CellEnd) -> None:
    """Apply the document in the new cell, and wait until every resource is InService."""
    sources = parse_sources(document_text(dict(document)), f"export of {endpoint}", Path.cwd())
    wanted = wanted_state(sources, new.credentials.role_arn)
    wanted, uploads = add_uploads(wanted, BUCKET)
    progress = TerminalProgress(is_terminal=sys.stderr.isatty())
    Application(
        aws=new.aws(),
        wanted=wanted,
        uploads=uploads,
        prune=False,
        pause=time.sleep,
        listener=progress,
    ).converge(lambda _: None)


def list_new_resources(document: Mapping[str, Any], order: MoveOrder, new: CellEnd) -> ApartTable:
    """The resources that were created in the new cell, by their names there."""
    given = document["endpoints"][order.endpoint]
    components = dict(given.get("Components", {}))
    adapters = [name for one in components.values() for name in one.get("Adapters", {})]
    aws = new.aws()
    configuration = aws.call("sagemaker", "DescribeEndpoint", {"EndpointName": order.endpoint})
    return ApartTable(
        account=new.credentials.account_id,
        cell=order.cell,
        endpoints=(order.endpoint,),
        components=(*components, *adapters),
        configurations=(configuration["EndpointConfigName"],),
        models=tuple(document.get("models", {})),
    )


def in_flight(cell: CellEnd, endpoint: str) -> float:
    """Requests under way or waiting on an endpoint: the mean of the last seconds."""
    found = control_answer(
        cell.config, cell.credentials, "/internal/load", {"endpoint": endpoint},
        knows="whether the old endpoint is in use",
    )  # fmt: skip
    return float(sum(row["in_flight"] + row["held"] for row in found["names"]))


def wait_until_unused(
    used: Callable[[], float], pause: Callable[[float], None], now: Callable[[], float]
) -> None:
    """Wait until no request is in flight. Raises TerminalError after the longest request time."""
    give_up_at = now() + PATIENCE_S
    while (left := used()) > 0:
        if now() > give_up_at:
            raise TerminalError(
                f"the old endpoint still has {left:g} requests under way after {PATIENCE_S:g} s:"
                " something calls its cell past the router; run this again, or with --keep"
            )
        pause(LOOK_EVERY_S)


def uris_in(document: Any, member: str = "", *, in_adapters: bool = False) -> Iterator[str]:
    """The ``s3://`` URIs in a document whose objects copies read."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from uris_in(value, name, in_adapters=member == "Adapters")
    elif isinstance(document, list):
        for value in document:
            yield from uris_in(value, member, in_adapters=in_adapters)
    elif (member in READ_BY_COPIES or in_adapters) and str(document).startswith(SCHEME):
        yield str(document)


def buckets_in(document: Any) -> Iterator[str]:
    """All buckets that a document names."""
    if isinstance(document, dict):
        for value in document.values():
            yield from buckets_in(value)
    elif isinstance(document, list):
        for value in document:
            yield from buckets_in(value)
    elif isinstance(document, str) and document.startswith(SCHEME):
        yield document.removeprefix(SCHEME).partition("/")[0]


def copy_artifacts(document: Any, source: Any, target: Any) -> int:
    """Copy the objects that copies read to another object store. Returns the number sent.

    An object that exists there with the same size and digest is not sent. All named buckets are
    created.
    """
    for bucket in dict.fromkeys(buckets_in(document)):
        make_bucket(target, bucket)
    number = 0
    for uri in dict.fromkeys(uris_in(document)):
        bucket, _, prefix = uri.removeprefix(SCHEME).partition("/")
        for key, size, digest in objects_below(source, bucket, prefix):
            if (size, digest) in there(target, bucket, key):
                continue
            body = source.get_object(Bucket=bucket, Key=key)["Body"]
            with TransferManager(target) as transfers:
                transfers.upload(body, bucket, key).result()
            typer.echo(f"copied s3://{bucket}/{key} ({size} bytes)", err=True)
            number += 1
    return number


def objects_below(s3: Any, bucket: str, prefix: str) -> Iterator[tuple[str, int, str]]:
    """Key, size and digest of the object with this key, or of all objects in this folder."""
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        for row in page.get("Contents", ()):
            if row["Key"] == prefix or row["Key"].startswith(folder):
                yield row["Key"], row["Size"], row["ETag"]


def there(s3: Any, bucket: str, key: str) -> list[tuple[int, str]]:
    """Size and digest of an object. Empty if the object does not exist."""
    listed = s3.list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents", ())
    return [(row["Size"], row["ETag"]) for row in listed if row["Key"] == key]


def add_cell(
    document: AssignmentDocument, name: str, url: str, credentials: Credentials
) -> AssignmentDocument:
    """The document with the cell, and with the cell's account if the account is new."""
    cells = {**document.cells, name: CellTable(url=url)}
    account = AccountTable(
        id=credentials.account_id,
        cell=name,
        access_key_ids=(credentials.access_key_id,),
        openai_key_sha256=(hashlib.sha256(credentials.openai_api_key.encode()).hexdigest(),),
    )
    known = any(it.id == account.id for it in document.accounts)
    accounts = document.accounts if known else (*document.accounts, account)
    return msgspec.structs.replace(document, cells=cells, accounts=accounts)


def move_resources_apart(document: AssignmentDocument, moved: ApartTable) -> AssignmentDocument:
    """The document with these resources in their new cell and in no other entry.

    If the new cell is the account's own cell, the resources need no entry.
    """
    others = [without(entry, moved) for entry in document.apart]
    kept = tuple(it for it in others if any(it.names().values()))
    is_own = any(it.id == moved.account and it.cell == moved.cell for it in document.accounts)
    apart = kept if is_own else (moved, *kept)  # before patterns that also match
    return msgspec.structs.replace(document, apart=apart)


def without(entry: ApartTable, moved: ApartTable) -> ApartTable:
    """The entry without the names in `moved`, if both are of one account."""
    if entry.account != moved.account:
        return entry
    gone = {
        "endpoints": frozenset(moved.endpoints),
        "components": frozenset(moved.components),
        "configurations": frozenset(moved.configurations),
        "models": frozenset(moved.models),
    }
    left = {
        kind: tuple(name for name in getattr(entry, kind) if name not in names)
        for kind, names in gone.items()
    }
    return msgspec.structs.replace(entry, **left)


def cell_rows(document: AssignmentDocument) -> list[dict[str, Any]]:
    """One row per cell, with its present state."""
    return [
        {
            "name": name,
            "url": cell.url,
            "state": get_state(cell.url),
            "accounts": [it.id for it in document.accounts if it.cell == name],
            "apart": [
                f"{kind.value} {pattern}"
                for entry in document.apart
                if entry.cell == name
                for kind, patterns in entry.names().items()
                for pattern in patterns
            ],
        }
        for name, cell in document.cells.items()
    ]


def get_state(url: str) -> str:
    """``answers`` if a cell's gateway answers, or else the reason why not."""
    try:
        answer = httpx.get(f"{url}/health", timeout=ANSWER_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        return f"does not answer ({error or type(error).__name__})"
    return "answers" if answer.status_code == 200 else f"answers {answer.status_code}"
