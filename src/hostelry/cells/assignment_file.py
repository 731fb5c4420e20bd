"""The operator's cells.toml: read, checked, written.

[cells.blue]
url = "http://10.0.0.1:8787"

[[accounts]]
id = "111122223333"
cell = "blue"
access_key_ids = ["HOSTELRYEXAMPLEKEY01"]
openai_key_sha256 = ["5e88..."]

[[apart]]
account = "111122223333"
cell = "green"
endpoints = ["shop", "lab-*"]
components = ["llama"]
"""

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.base.json import convert
from hostelry.cells.assignment import AssignedApart, Assignment, Cell, CellAccount
from hostelry.cells.request_claims import NamedKind

MAX_FILE_BYTES = 64 * 1024 * 1024
ACCOUNT_ID = re.compile(r"[0-9]{12}")
DIGEST = re.compile(r"[0-9a-f]{64}")
NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
HEADER = "# Whose requests go to which cell; `hostelry cells router` reads it again on change.\n"


class CellTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A table [cells.NAME]."""

    url: str


class AccountTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A table [[accounts]]."""

    id: str
    cell: str
    access_key_ids: tuple[str, ...] = ()
    openai_key_sha256: tuple[str, ...] = ()


class ApartTable(msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True):
    """A table [[apart]]."""

    account: str
    cell: str
    endpoints: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    configurations: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    def names(self) -> dict[NamedKind, tuple[str, ...]]:
        """The names by their kind."""
        return {
            NamedKind.ENDPOINT: self.endpoints,
            NamedKind.COMPONENT: self.components,
            NamedKind.CONFIGURATION: self.configurations,
            NamedKind.MODEL: self.models,
        }


class AssignmentDocument(
    msgspec.Struct, forbid_unknown_fields=True, frozen=True, omit_defaults=True
):
    """The whole file."""

    cells: dict[str, CellTable]
    accounts: tuple[AccountTable, ...] = ()
    apart: tuple[ApartTable, ...] = ()
    default: str | None = None


def read_document(path: Path) -> AssignmentDocument:
    """Read and check the file. Raises TerminalError, which names the file and each fault."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise TerminalError(f"{path} has more than {MAX_FILE_BYTES} bytes")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TerminalError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TerminalError(f"{path} is no TOML file: {error}") from None
    try:
        document = convert(content, AssignmentDocument)
    except msgspec.ValidationError as error:
        raise TerminalError(f"{path}: {error}") from None
    check_document(document, path)
    return document


def check_document(document: AssignmentDocument, path: Path) -> None:
    """Raise TerminalError that names each fault, the first 20 of them."""
    faults = list(find_faults(document))
    if faults:
        raise TerminalError(f"{path}: " + "; ".join(faults[:20]))


def build_assignment(document: AssignmentDocument) -> Assignment:
    """Build the assignment of a checked document."""
    return Assignment(
        cells={
            name: Cell(name=name, url=cell.url.rstrip("/")) for name, cell in document.cells.items()
        },
        accounts=tuple(
            CellAccount(
                id=account.id,
                cell=account.cell,
                access_key_ids=frozenset(account.access_key_ids),
                openai_key_sha256=frozenset(account.openai_key_sha256),
            )
            for account in document.accounts
        ),
        apart=tuple(
            AssignedApart(account_id=entry.account, cell=entry.cell, names=entry.names())
            for entry in document.apart
        ),
        default=document.default,
    )


def write_document(path: Path, document: AssignmentDocument) -> None:
    """Replace the file, whole or not at all. Its comments are lost."""
    try:
        write_whole(path, (HEADER + document_text(document)).encode())
    except OSError as error:
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None


def document_text(document: AssignmentDocument) -> str:
    """A document as TOML."""
    lines = [] if document.default is None else [f"default = {quote_key(document.default)}", ""]
    for name, cell in document.cells.items():
        lines += [f"[cells.{quote_key(name)}]", f"url = {quote_key(cell.url)}", ""]
    tables: tuple[tuple[str, tuple[AccountTable | ApartTable, ...]], ...] = (
        ("accounts", document.accounts),
        ("apart", document.apart),
    )
    for title, rows in tables:
        for row in rows:
            lines.append(f"[[{title}]]")
            for key, value in msgspec.to_builtins(row).items():
                lines.append(f"{key} = {toml_value(value)}")
            lines.append("")
    return "\n".join(lines)


def toml_value(value: str | list[str]) -> str:
    """A text, or a list of them, in TOML."""
    return quote_key(value) if isinstance(value, str) else f"[{', '.join(map(quote_key, value))}]"


def quote_key(text: str) -> str:
    """Quote a text for TOML. JSON's strings are valid there."""
    return msgspec.json.encode(text).decode()


def find_faults(document: AssignmentDocument) -> Iterator[str]:
    """Find faults beyond the types of fields."""
    if not document.cells:
        yield "there is no [cells.NAME]"
    for name, cell in document.cells.items():
        if not NAME.fullmatch(name):
            yield f"cells.{name}: a name has letters, digits and inner hyphens, 63 at most"
        if not is_url(cell.url):
            yield f"cells.{name}.url {cell.url!r}: expected a URL like http://10.0.0.1:8787"
    known = ", ".join(document.cells)
    named = [("default", document.default)] if document.default is not None else []
    named += [(f"accounts.{it.id}.cell", it.cell) for it in document.accounts]
    named += [(f"apart.{number}.cell", it.cell) for number, it in enumerate(document.apart)]
    for place, cell_name in named:
        if cell_name not in document.cells:
            yield f"{place}: there is no cell {cell_name!r}; there are {known}"
    yield from account_faults(document)


def account_faults(document: AssignmentDocument) -> Iterator[str]:
    """What is wrong with accounts and their keys."""
    accounts = {it.id for it in document.accounts}
    for account in document.accounts:
        if not ACCOUNT_ID.fullmatch(account.id):
            yield f"accounts.id {account.id!r}: expected 12 digits"
        for digest in account.openai_key_sha256:
            if not DIGEST.fullmatch(digest):
                place = f"accounts.{account.id}.openai_key_sha256"
                yield f"{place} {digest[:80]!r}: expected 64 hexadecimal digits"
        if not account.access_key_ids and not account.openai_key_sha256:
            yield f"accounts.{account.id}: it has no key, so that no request is its"
    for number, entry in enumerate(document.apart):
        if entry.account not in accounts:
            yield f"apart.{number}.account: there is no account {entry.account!r}"
        if not any(entry.names().values()):
            yield f"apart.{number}: it names nothing"
    for what, values in (
        ("account", (it.id for it in document.accounts)),
        ("access key", (key for it in document.accounts for key in it.access_key_ids)),
        ("OpenAI key", (key for it in document.accounts for key in it.openai_key_sha256)),
    ):
        yield from (f"the {what} {it} is there twice" for it in find_repeated(values))


def find_repeated(values: Iterable[str]) -> list[str]:
    """Return the values that occur more than once."""
    return [value for value, count in Counter(values).items() if count > 1]


def is_url(text: str) -> bool:
    """Whether the text is the address of a gateway."""
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and (parts.port or 80) > 0
            and parts.path in ("", "/")
            and not (parts.query or parts.fragment or parts.username)
        )
    except ValueError:
        return False
