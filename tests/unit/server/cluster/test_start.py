"""Parts of a host in a cluster that are allowed, and that are refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.server.cluster.start import check_cluster
from hostelry.server.up_options import UpOptions

OPTIONS = UpOptions(home=Path("/h"), cluster_host="10.0.0.2")
ON_RAY = {"fleet": "ray"}
OWN_FILES = {"tls_ca": "ca.pem", "tls_cert": "c.pem", "tls_key": "k.pem"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="a host of the local fleet, on loopback but for its proxy"),
        pytest.param(OWN_FILES, id="the operator's own certificate"),
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
            ON_RAY | OWN_FILES | {"host": "0.0.0.0"},
            "hostelry's own authority",
            id="a certificate of the operator's where each instance needs one",
        ),
        pytest.param(
            ON_RAY, "--host 127.0.0.1: instances on other machines", id="a gateway on loopback"
        ),
        pytest.param(
            ON_RAY | {"host": "0.0.0.0", "s3_endpoint": "http://localhost:9000"},
            "--s3-endpoint http://localhost:9000 is on this machine's loopback",
            id="an S3 on loopback",
        ),
    ],
)
def test_parts_that_are_refused(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        check_cluster(replace(OPTIONS, **changes))
