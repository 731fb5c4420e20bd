"""The choice of a cell, and the file that it is read from."""

from pathlib import Path

import msgspec
import pytest
from tests.cases import case, cases

from hostelry.base.errors import ServiceError, TerminalError
from hostelry.base.ids import new_access_key_id
from hostelry.cells.assignment_file import build_assignment, read_document, write_document
from hostelry.cells.request_claims import NamedKind, NamedResource, RequestClaims

FILE = """
[cells.blue]
url = "http://10.0.0.1:8787/"
[cells.green]
url = "http://10.0.0.2:8787"
[[accounts]]
id = "111122223333"
cell = "blue"
access_key_ids = ["KEYONE"]
openai_key_sha256 = ["%s"]
[[accounts]]
id = "444455556666"
cell = "green"
access_key_ids = ["KEYTWO"]
[[apart]]
account = "111122223333"
cell = "green"
endpoints = ["shop", "lab-*"]
components = ["llama"]
""" % ("a" * 64)
SHOP = NamedResource(kind=NamedKind.ENDPOINT, name="shop")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cells.toml"
    path.write_text(FILE)
    return path


@cases(
    "asked, cell",
    case("an account's cell", RequestClaims(access_key_id="KEYONE"), "blue"),
    case("another account's", RequestClaims(access_key_id="KEYTWO"), "green"),
    case("by an OpenAI key", RequestClaims(bearer_sha256="a" * 64), "blue"),
    case("by the account of temporary keys",
        RequestClaims(access_key_id="ASIA1", account_id="444455556666"), "green"),
    case("by the account in a user's access key id",
        RequestClaims(access_key_id=new_access_key_id("444455556666")), "green"),
    case("an endpoint apart", RequestClaims(access_key_id="KEYONE", names=(SHOP,)), "green"),
    case("another account's endpoint of the same name is not",
        RequestClaims(access_key_id="KEYTWO", names=(SHOP,)), "green"),
    case("a pattern", RequestClaims(
            access_key_id="KEYONE",
            names=(NamedResource(kind=NamedKind.ENDPOINT, name="lab-7"),),
        ), "green"),
    case("a model of an endpoint's name is another resource", RequestClaims(
            access_key_id="KEYONE", names=(NamedResource(kind=NamedKind.MODEL, name="shop"),)
        ), "blue"),
)  # fmt: skip
def test_a_request_goes_to(file: Path, asked: RequestClaims, cell: str) -> None:
    found = build_assignment(read_document(file)).find_cell(asked)
    assert found.name == cell
    assert not found.url.endswith("/")


@cases(
    "asked, code",
    case("without a key", RequestClaims(), "MissingAuthenticationTokenException"),
    case("unknown key", RequestClaims(access_key_id="X"), "UnrecognizedClientException"),
    case("an account that no cell has",
        RequestClaims(access_key_id="KEYONE", account_id="999999999999"),
        "UnrecognizedClientException"),
)  # fmt: skip
def test_a_request_of_no_account_is_refused_or_goes_to_the_default(
    file: Path, asked: RequestClaims, code: str
) -> None:
    document = read_document(file)
    with pytest.raises(ServiceError) as caught:
        build_assignment(document).find_cell(asked)
    assert (caught.value.code, caught.value.http_status) == (code, 403)
    by_default = msgspec.structs.replace(document, default="green")
    assert build_assignment(by_default).find_cell(asked).name == "green"


def test_what_is_written_is_read_back(file: Path) -> None:
    document = read_document(file)
    write_document(file, document)
    assert read_document(file) == document


@cases(
    "old, new, reason",
    case("a cell that is not there", 'cell = "blue"', 'cell = "red"',
        "there is no cell 'red'; there are blue, green"),
    case("twice", '"KEYTWO"', '"KEYONE"', "the access key KEYONE is there twice"),
    case("no account id", "444455556666", "44445555", "expected 12 digits"),
    case("no URL", "http://10.0.0.1:8787/", "10.0.0.1:8787", "expected a URL"),
    case("no port", "10.0.0.1:8787", "10.0.0.1:99999", "expected a URL"),
    case("a misspelt field", "endpoints", "endpoint", "unknown field `endpoint`"),
    case("no digest", "a" * 64, "a" * 63, "64 hexadecimal digits"),
    case("an account that is not there", 'account = "111122223333"', 'account = "222233334444"',
        "there is no account"),
    case("no TOML", "[cells.blue]", "[cells.blue", "is no TOML file"),
)  # fmt: skip
def test_a_file_with_a_fault_is_refused_with_its_place(
    file: Path, old: str, new: str, reason: str
) -> None:
    file.write_text(FILE.replace(old, new, 1))
    with pytest.raises(TerminalError, match=r"cells\.toml") as caught:
        read_document(file)
    assert reason in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TerminalError, match=r"none\.toml cannot be read: No such file"):
        read_document(tmp_path / "none.toml")
