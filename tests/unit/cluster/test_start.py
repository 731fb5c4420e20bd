"""Parts of a host in a cluster that are allowed, and that are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.cluster.start import check_cluster, service_addresses
from hostelry.home.home import UpConfig
from hostelry.home.up_options import UpOptions

OPTIONS = UpOptions(home=Path("/h"), cluster_host="10.0.0.2")
ON_RAY = {"fleet": "ray"}
OWN_FILES = {"tls_ca": "ca.pem", "tls_cert": "c.pem", "tls_key": "k.pem"}


@cases(
    "changes",
    case("a host of the local fleet, on loopback but for its proxy", {}),
    case("the operator's own certificate", OWN_FILES),
    case("Ray, on loopback but for its proxy", ON_RAY),
    case("Ray, every address", ON_RAY | {"host": "0.0.0.0"}),
    case("Ray, the host's own address", ON_RAY | {"host": "10.0.0.2"}),
    case("Ray, another S3", ON_RAY | {"host": "10.0.0.2", "s3_endpoint": "http://nas:9000"}),
    case("Ray on this machine alone", ON_RAY | {"cluster_host": "127.0.0.2"}),
    case("Ray, and no other host", ON_RAY | {"cluster_host": None}),
)
def test_parts_that_are_allowed(changes: dict[str, Any]) -> None:
    check_cluster(replace(OPTIONS, **changes))


@cases(
    "changes, text",
    case("a name", {"cluster_host": "a.example"}, "expected the IP"),
    case("every address", {"cluster_host": "0.0.0.0"}, "name this host's own"),
    case("a port beyond the last", {"cluster_port": 65536}, "1 to 65535"),
    case("a port alone", {"cluster_host": None, "cluster_port": 7443}, "needs --cluster-host"),
    case(
        "a certificate of the operator's where each instance needs one",
        ON_RAY | OWN_FILES,
        "hostelry's own authority",
    ),
    case(
        "a gateway without keys behind links",
        ON_RAY | {"insecure_no_auth": True},
        "let in every user of every node",
    ),
    case(
        "an S3 on loopback",
        ON_RAY | {"s3_endpoint": "http://localhost:9000"},
        "--s3-endpoint http://localhost:9000 is on this machine's loopback",
    ),
)
def test_parts_that_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        check_cluster(replace(OPTIONS, **changes))


CONFIG = UpConfig(control_port=1, jobs_port=2, peer_port=3, gateway_port=4, s3_port=5)
INNER = {"control": ("127.0.0.1", 1), "jobs": ("127.0.0.1", 2), "gateway-peer": ("127.0.0.1", 3)}


@cases(
    "changes, addresses",
    case("all are on loopback", {}, {"gateway": ("127.0.0.1", 4), "s3": ("127.0.0.1", 5)}),
    case(
        "every address has loopback among them",
        {"host": "0.0.0.0"},
        {"gateway": ("127.0.0.1", 4), "s3": ("127.0.0.1", 5)},
    ),
    case(
        "clients' servers are on their own address",
        {"host": "10.0.0.2"},
        {"gateway": ("10.0.0.2", 4), "s3": ("10.0.0.2", 5)},
    ),
    case(
        "an object store of the operator's is not behind the proxy",
        {"s3_endpoint": "https://s3.example"},
        {"gateway": ("127.0.0.1", 4)},
    ),
    case("a further control has neither", {"gateway_workers": 0}, {}),
)
def test_names_stand_for_servers(
    changes: dict[str, Any], addresses: dict[str, tuple[str, int]]
) -> None:
    assert service_addresses(replace(CONFIG, **changes)) == INNER | addresses
