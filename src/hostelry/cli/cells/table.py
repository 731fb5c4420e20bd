"""The table of cells as its commands change and show it."""

import hashlib
from typing import Any

import httpx
import msgspec

from hostelry.cells.assignment_file import AccountTable, ApartTable, AssignmentDocument, CellTable
from hostelry.home.home import Credentials

ANSWER_TIMEOUT_S = 3.0


def with_cell(
    document: AssignmentDocument, name: str, url: str, credentials: Credentials
) -> AssignmentDocument:
    """The document with the cell, and its account where no cell had it yet."""
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


def with_resources_apart(document: AssignmentDocument, moved: ApartTable) -> AssignmentDocument:
    """The document with these resources in their new cell; no other entry names them any more.

    Where the new cell is the account's own, the resources are assigned apart no more.
    """
    others = [without(entry, moved) for entry in document.apart]
    kept = tuple(it for it in others if any(it.names().values()))
    is_own = any(it.id == moved.account and it.cell == moved.cell for it in document.accounts)
    apart = kept if is_own else (moved, *kept)  # before patterns that fit, too
    return msgspec.structs.replace(document, apart=apart)


def without(entry: ApartTable, moved: ApartTable) -> ApartTable:
    """The entry without the names of `moved`, where both are of one account."""
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
    """A row a cell, with what it answers now."""
    return [
        {
            "name": name,
            "url": cell.url,
            "state": state_of(cell.url),
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


def state_of(url: str) -> str:
    """Whether a cell's gateway answers: ``answers``, or why not."""
    try:
        answer = httpx.get(f"{url}/health", timeout=ANSWER_TIMEOUT_S, trust_env=False)
    except httpx.HTTPError as error:
        return f"does not answer ({error or type(error).__name__})"
    return "answers" if answer.status_code == 200 else f"answers {answer.status_code}"
