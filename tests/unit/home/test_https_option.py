"""--https-cert, --https-key and --https-ca: accepted files, and the settings of clients."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cases import case, cases
from tests.https_rig import HostAuthority

from hostelry.base.errors import TerminalError
from hostelry.cli.environment import client_variables
from hostelry.home.home import Home, UpConfig, new_credentials
from hostelry.home.https_option import add_https, choose_url_host
from hostelry.home.up_options import UpOptions

CONFIG = UpConfig(control_port=1, gateway_port=8787, s3_port=8788)
BUNDLED = ("AWS_CA_BUNDLE", "SSL_CERT_FILE")


@cases(
    "names, listening, name",
    case("its own address", ["a.example", "127.0.0.1"], "127.0.0.1", "127.0.0.1"),
    case("on every address", ["a.example", "127.0.0.1"], "0.0.0.0", "127.0.0.1"),
    case("loopback's name", ["a.example", "localhost"], "127.0.0.1", "localhost"),
    case("an address of its", ["a.example", "10.0.0.2"], "10.0.0.2", "10.0.0.2"),
    case("else the first name", ["a.example", "b.example"], "10.0.0.2", "a.example"),
    case("no wildcard", ["*.example", "b.example"], "10.0.0.2", "b.example"),
    case("nothing but wildcards", ["*.example"], "10.0.0.2", None),
    case("no name", [], "10.0.0.2", None),
)
def test_urls_have_a_name_of_the_certificate(
    names: list[str], listening: str, name: str | None
) -> None:
    assert choose_url_host(names, listening) == name


def test_clients_are_sent_to_the_certificates_name(tmp_path: Path) -> None:
    authority = HostAuthority(tmp_path)
    certificate, key = authority.pair("host", "models.example")
    options = UpOptions(
        home=tmp_path, https_cert=str(certificate), https_key=str(key), https_ca=str(authority.ca)
    )
    config = add_https(Home(tmp_path), CONFIG, options)
    given = client_variables(config, new_credentials("111122223333", "us-east-1"))
    assert given["AWS_ENDPOINT_URL"] == "https://models.example:8787"
    assert given["AWS_ENDPOINT_URL_S3"] == "https://models.example:8788"
    assert given["OPENAI_BASE_URL"] == "https://models.example:8787/v1"
    assert config.console_url == "https://models.example:8787/console"
    assert (config.gateway_url, config.s3_url) == ("http://127.0.0.1:8787", "http://127.0.0.1:8788")
    bundles = {given[name] for name in BUNDLED}
    assert bundles == {str(tmp_path / "https-ca.pem")}
    trusted = (tmp_path / "https-ca.pem").read_text()
    assert authority.ca.read_text() in trusted
    assert trusted.count("BEGIN CERTIFICATE") > 1, "other hosts are still believed"
    own_store = replace(config, s3_endpoint="http://nas:9000")
    assert own_store.client_s3_url == "http://nas:9000"


def test_without_a_certificate_nothing_changes(tmp_path: Path) -> None:
    joined = replace(CONFIG, https_cert="/of/another/host.pem", https_key="/k", https_host="h")
    config = add_https(Home(tmp_path), joined, UpOptions(home=tmp_path))
    assert config == CONFIG
    given = client_variables(config, new_credentials("111122223333", "us-east-1"))
    assert given["AWS_ENDPOINT_URL"] == "http://127.0.0.1:8787"
    assert not set(BUNDLED) & set(given)


Options = Callable[[HostAuthority], dict[str, str]]


def of_pair(*hosts: str, days: int = 10, ca: bool = True) -> Options:
    def made(authority: HostAuthority) -> dict[str, str]:
        certificate, key = authority.pair("host", *hosts, days=days)
        given = {"https_cert": str(certificate), "https_key": str(key)}
        return given | ({"https_ca": str(authority.ca)} if ca else {})

    return made


@cases(
    "options, text",
    case("one of a pair", lambda _: {"https_cert": "c.pem"}, "are a pair: give both"),
    case("a CA alone", lambda it: {"https_ca": str(it.ca)}, "--https-cert, which is not given"),
    case(
        "a file that is not there",
        lambda _: {"https_cert": "/no/c.pem", "https_key": "/no/k.pem"},
        "--https-key: /no/c.pem cannot be read",
    ),
    case("a certificate without names", of_pair(), "names no host"),
    case("a wildcard alone", of_pair("*.example"), "names no host"),
    case("an old certificate", of_pair("a.example", days=-1), "has expired"),
    case(
        "an authority that no client knows",
        of_pair("a.example", ca=False),
        "--https-ca FILE names an authority",
    ),
    case(
        "a CA that is none",
        lambda it: of_pair("a.example")(it) | {"https_ca": __file__},
        "is no certificate, PEM",
    ),
)
def test_what_clients_would_refuse_is_refused_at_start(
    tmp_path: Path, options: Options, text: str
) -> None:
    given = options(HostAuthority(tmp_path))
    with pytest.raises(TerminalError, match=text):
        add_https(Home(tmp_path), CONFIG, UpOptions(home=tmp_path, **given))  # type: ignore[arg-type]
