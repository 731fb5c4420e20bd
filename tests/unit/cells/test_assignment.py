"""The choice of a cell, and the file that it is read from."""

from pathlib import Path

import msgspec
import pytest

from hostelry.base.errors import ServiceError, TerminalError
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


@pytest.mark.parametrize(
    ("asked", "cell"),
    [
        pytest.param(RequestClaims(access_key_id="KEYONE"), "blue", id="an account's cell"),
        pytest.param(RequestClaims(access_key_id="KEYTWO"), "green", id="another account's"),
        pytest.param(RequestClaims(bearer_sha256="a" * 64), "blue", id="by an OpenAI key"),
        pytest.param(
            RequestClaims(access_key_id="ASIA1", account_id="444455556666"), "green",
            id="by the account of temporary keys",
        ),
        pytest.param(
            RequestClaims(access_key_id="KEYONE", names=(SHOP,)), "green", id="an endpoint apart"
        ),
        pytest.param(
            RequestClaims(access_key_id="KEYTWO", names=(SHOP,)), "green",
            id="another account's endpoint of the same name is not",
        ),
        pytest.param(
            RequestClaims(
                access_key_id="KEYONE",
                names=(NamedResource(kind=NamedKind.ENDPOINT, name="lab-7"),),
            ),
            "green", id="a pattern",
        ),
        pytest.param(
            RequestClaims(
                access_key_id="KEYONE", names=(NamedResource(kind=NamedKind.MODEL, name="shop"),)
            ),
            "blue", id="a model of an endpoint's name is another resource",
        ),
    ],
)  # fmt: skip
def test_a_request_goes_to(file: Path, asked: RequestClaims, cell: str) -> None:
    found = build_assignment(read_document(file)).find_cell(asked)
    assert found.name == cell
    assert not found.url.endswith("/")


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        pytest.param(RequestClaims(), "MissingAuthenticationTokenException", id="without a key"),
        pytest.param(
            RequestClaims(access_key_id="X"), "UnrecognizedClientException", id="unknown key"
        ),
        pytest.param(
            RequestClaims(access_key_id="KEYONE", account_id="999999999999"),
            "UnrecognizedClientException", id="an account that no cell has",
        ),
    ],
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


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        pytest.param(
            'cell = "blue"', 'cell = "red"', "there is no cell 'red'; there are blue, green",
            id="a cell that is not there",
        ),
        pytest.param('"KEYTWO"', '"KEYONE"', "the access key KEYONE is there twice", id="twice"),
        pytest.param("444455556666", "44445555", "expected 12 digits", id="no account id"),
        pytest.param("http://10.0.0.1:8787/", "10.0.0.1:8787", "expected a URL", id="no URL"),
        pytest.param("10.0.0.1:8787", "10.0.0.1:99999", "expected a URL", id="no port"),
        pytest.param("endpoints", "endpoint", "unknown field `endpoint`", id="a misspelt field"),
        pytest.param("a" * 64, "a" * 63, "64 hexadecimal digits", id="no digest"),
        pytest.param(
            'account = "111122223333"', 'account = "222233334444"', "there is no account",
            id="an account that is not there",
        ),
        pytest.param("[cells.blue]", "[cells.blue", "is no TOML file", id="no TOML"),
    ],
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
