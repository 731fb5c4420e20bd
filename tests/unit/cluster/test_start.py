"""Parts of a host in a cluster that are allowed, and that are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.cluster.start import check_cluster, service_addresses
from hostelry.home.home import UpConfig
from hostelry.home.up_options import UpOptions

OPTIONS = UpOptions(home=Path("/h"), cluster_host="10.0.0.2")
ON_RAY = {"fleet": "ray"}
OWN_FILES = {"tls_ca": "ca.pem", "tls_cert": "c.pem", "tls_key": "k.pem"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="a host of the local fleet, on loopback but for its proxy"),
        pytest.param(OWN_FILES, id="the operator's own certificate"),
        pytest.param(ON_RAY, id="Ray, on loopback but for its proxy"),
        pytest.param(ON_RAY | {"host": "0.0.0.0"}, id="Ray, every address"),
        pytest.param(ON_RAY | {"host": "10.0.0.2"}, id="Ray, the host's own address"),
        pytest.param(
            ON_RAY | {"host": "10.0.0.2", "s3_endpoint": "http://nas:9000"}, id="Ray, another S3"
        ),
        pytest.param(ON_RAY | {"cluster_host": "127.0.0.2"}, id="Ray on this machine alone"),
        pytest.param(ON_RAY | {"cluster_host": None}, id="Ray, and no other host"),
    ],
)
def test_parts_that_are_allowed(changes: dict[str, Any]) -> None:
    check_cluster(replace(OPTIONS, **changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"cluster_host": "a.example"}, "expected the IP", id="a name"),
        pytest.param({"cluster_host": "0.0.0.0"}, "name this host's own", id="every address"),
        pytest.param({"cluster_port": 65536}, "1 to 65535", id="a port beyond the last"),
        pytest.param(
            {"cluster_host": None, "cluster_port": 7443}, "needs --cluster-host", id="a port alone"
        ),
        pytest.param(
            ON_RAY | OWN_FILES,
            "hostelry's own authority",
            id="a certificate of the operator's where each instance needs one",
        ),
        pytest.param(
            ON_RAY | {"insecure_no_auth": True},
            "let in every user of every node",
            id="a gateway without keys behind links",
        ),
        pytest.param(
            ON_RAY | {"s3_endpoint": "http://localhost:9000"},
            "--s3-endpoint http://localhost:9000 is on this machine's loopback",
            id="an S3 on loopback",
        ),
    ],
)
def test_parts_that_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        check_cluster(replace(OPTIONS, **changes))


CONFIG = UpConfig(control_port=1, jobs_port=2, peer_port=3, gateway_port=4, s3_port=5)
INNER = {"control": ("127.0.0.1", 1), "jobs": ("127.0.0.1", 2), "gateway-peer": ("127.0.0.1", 3)}


@pytest.mark.parametrize(
    ("changes", "addresses"),
    [
        pytest.param(
            {}, {"gateway": ("127.0.0.1", 4), "s3": ("127.0.0.1", 5)}, id="all are on loopback"
        ),
        pytest.param(
            {"host": "0.0.0.0"},
            {"gateway": ("127.0.0.1", 4), "s3": ("127.0.0.1", 5)},
            id="every address has loopback among them",
        ),
        pytest.param(
            {"host": "10.0.0.2"},
            {"gateway": ("10.0.0.2", 4), "s3": ("10.0.0.2", 5)},
            id="clients' servers are on their own address",
        ),
        pytest.param(
            {"s3_endpoint": "https://s3.example"},
            {"gateway": ("127.0.0.1", 4)},
            id="an object store of the operator's is not behind the proxy",
        ),
        pytest.param({"gateway_workers": 0}, {}, id="a further control has neither"),
    ],
)
def test_names_stand_for_servers(
    changes: dict[str, Any], addresses: dict[str, tuple[str, int]]
) -> None:
    assert service_addresses(replace(CONFIG, **changes)) == INNER | addresses
