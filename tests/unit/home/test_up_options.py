import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hostelry.base.errors import TerminalError
from hostelry.home.home import Credentials, new_credentials
from hostelry.home.port_choice import ChosenPorts
from hostelry.home.up_options import (
    DEFAULT_ACCOUNT,
    UpOptions,
    check_options,
    decide_config,
    decide_credentials,
)
from hostelry.processes.background import decode_options, encode_options

OPTIONS = UpOptions(home=Path("/h"))
STORED = new_credentials("999988887777", "eu-west-1")
PAIR = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
OTHER_S3 = replace(OPTIONS, s3_endpoint="http://nas:9000")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="the defaults"),
        pytest.param({"host": "0.0.0.0"}, id="every address, signed"),
        pytest.param({"host": "::1", "insecure_no_auth": True}, id="unsigned on IPv6 loopback"),
        pytest.param({"host": "localhost", "insecure_no_auth": True}, id="unsigned on localhost"),
        pytest.param(
            {"s3_endpoint": "https://nas.example", "s3_port": 8787}, id="an S3 frees the S3 port"
        ),
        pytest.param({"region": "us-gov-west-1"}, id="a region with four parts"),
        pytest.param({"invoke_timeout_s": 1, "stream_timeout_s": 86400}, id="the ends of limits"),
        pytest.param({"gateway_workers": 1}, id="one worker"),
        pytest.param(
            {"at_zero": "compat", "hold_limit_s": 5, "hold_requests": 1, "hold_mb": 1},
            id="as little waiting as may be",
        ),
        pytest.param({"gateway_workers": 64}, id="the most workers"),
    ],
)
def test_options_that_are_allowed(changes: dict[str, Any]) -> None:
    check_options(replace(OPTIONS, **changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"port": 0}, "--port 0", id="port zero"),
        pytest.param({"s3_port": 65536}, "--s3-port 65536", id="a port beyond the last"),
        pytest.param({"port": 8787, "s3_port": 8787}, "both 8787", id="one port for two"),
        pytest.param(
            {"host": "example.com"}, "--host example.com", id="a name instead of an address"
        ),
        pytest.param({"host": ""}, "--host", id="no address"),
        pytest.param(
            {"host": "10.0.0.1", "insecure_no_auth": True}, "loopback only", id="unsigned and open"
        ),
        pytest.param(
            {"host": "::", "insecure_no_auth": True}, "loopback only", id="unsigned, open on IPv6"
        ),
        pytest.param({"account_id": "1234567890123"}, "12 digits", id="thirteen digits"),
        pytest.param(
            {"account_id": "\N{ARABIC-INDIC DIGIT ONE}" * 12},
            "12 digits",
            id="digits of another script",
        ),
        pytest.param({"region": "us-east-1\n"}, "--region", id="a region with a line break"),
        pytest.param({"max_body_mb": 0}, "--max-body-mb 0", id="no body at all"),
        pytest.param({"max_body_mb": float("nan")}, "--max-body-mb nan", id="not a number"),
        pytest.param({"pace": 0.5}, "--pace 0.5", id="slower than AWS"),
        pytest.param({"pace": float("nan")}, "--pace nan", id="a pace of no number"),
        pytest.param({"artifact_cache_gb": 0}, "--artifact-cache-gb 0", id="no cache at all"),
        pytest.param({"artifact_cache_gb": float("nan")}, "gb nan", id="a cache of no number"),
        pytest.param({"drain_s": -1.0}, "--drain-s -1: expected 0", id="a stop in the past"),
        pytest.param({"drain_s": 1e9}, r"--drain-s 1e\+09", id="a stop that never comes"),
        pytest.param({"files_gb": 0}, "--files-gb 0: expected at least", id="no room for files"),
        pytest.param({"files_gb": float("inf")}, "--files-gb inf", id="files without end"),
        pytest.param({"invoke_timeout_s": 0}, "--invoke-timeout-s 0: expected 1", id="no time"),
        pytest.param({"invoke_timeout_s": -60}, "--invoke-timeout-s -60", id="time backwards"),
        pytest.param({"stream_timeout_s": 86401}, "at most 86400", id="a stream beyond a day"),
        pytest.param({"stream_timeout_s": float("nan")}, "stream-timeout-s nan", id="no duration"),
        pytest.param({"stream_timeout_s": float("inf")}, "stream-timeout-s inf", id="for ever"),
        pytest.param({"max_body_mb": 5000}, "1024", id="a body beyond the limit"),
        pytest.param({"gateway_workers": 0}, "--gateway-workers 0: expected 1", id="no worker"),
        pytest.param({"at_zero": "wait"}, "--at-zero wait: expected hold", id="no such choice"),
        pytest.param({"hold_limit_s": 0}, "--hold-limit-s 0: expected 1", id="no time to wait"),
        pytest.param({"hold_limit_s": float("nan")}, "--hold-limit-s nan", id="waiting for NaN s"),
        pytest.param({"hold_requests": 0}, "--hold-requests 0: expected 1", id="none may wait"),
        pytest.param({"hold_requests_each": -1}, "--hold-requests-each -1", id="fewer than none"),
        pytest.param({"hold_mb": 0.5}, "--hold-mb 0.5: expected 1", id="nothing may wait"),
        pytest.param({"metrics_mb": 1}, "--metrics-mb 1: expected 8", id="no room for metrics"),
        pytest.param({"metrics_mb": float("nan")}, "--metrics-mb nan", id="room of no number"),
        pytest.param({"gateway_workers": 65}, "at most 64", id="too many workers"),
        pytest.param({"s3_endpoint": "nas:9000"}, "--s3-endpoint", id="an endpoint without http"),
        pytest.param({"s3_endpoint": "ftp://nas"}, "--s3-endpoint", id="another scheme"),
    ],
)
def test_options_that_are_refused_name_the_flag(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(TerminalError, match=text):
        check_options(replace(OPTIONS, **changes))


def test_the_first_up_makes_keys() -> None:
    made = decide_credentials(OPTIONS, None, {})
    again = decide_credentials(OPTIONS, None, {})
    assert (made.account_id, made.region) == (DEFAULT_ACCOUNT, "us-east-1")
    assert made.secret_access_key != again.secret_access_key


def test_the_operators_aws_keys_are_not_taken_over_without_another_s3() -> None:
    assert decide_credentials(OPTIONS, None, PAIR).access_key_id != "key"
    assert decide_credentials(OPTIONS, STORED, PAIR) == STORED


@pytest.mark.parametrize(
    "stored", [pytest.param(None, id="at the first up"), pytest.param(STORED, id="later")]
)
def test_another_s3s_keys_become_ours(stored: Credentials | None) -> None:
    decided = decide_credentials(OTHER_S3, stored, PAIR)
    assert (decided.access_key_id, decided.secret_access_key) == ("key", "secret")
    if stored is not None:
        assert decided.internal_key == stored.internal_key


@pytest.mark.parametrize(
    ("options", "stored", "environment", "text"),
    [
        pytest.param(OTHER_S3, None, {}, "AWS_ACCESS_KEY_ID", id="another S3 without keys"),
        pytest.param(
            OTHER_S3, None, {"AWS_ACCESS_KEY_ID": "key"}, "AWS_SECRET_ACCESS_KEY", id="half a pair"
        ),
        pytest.param(
            OTHER_S3,
            STORED,
            {**PAIR, "AWS_SESSION_TOKEN": "t"},
            "temporary keys",
            id="keys that expire",
        ),
        pytest.param(
            replace(OPTIONS, region="us-west-2"), STORED, {}, "made for eu-west-1", id="new region"
        ),
        pytest.param(
            replace(OPTIONS, account_id="111122223333"),
            STORED,
            {},
            "made for 999988887777",
            id="new account",
        ),
    ],
)
def test_keys_that_cannot_be_decided(
    options: UpOptions, stored: Credentials | None, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(TerminalError, match=text):
        decide_credentials(options, stored, environment)


def ports() -> ChosenPorts:
    """Ports that were free; the socket is not used."""
    return ChosenPorts(
        listener=socket.socket.__new__(socket.socket), gateway_port=8787, s3_port=8788
    )


def test_the_configuration_has_the_options() -> None:
    config = decide_config(
        replace(OTHER_S3, max_body_mb=1.5, host="::1"), ports(), (4242, 4243, 4244), 3
    )
    assert (config.control_port, config.max_body_bytes) == (4242, 1536 * 1024)
    assert (config.host, config.s3_url) == ("::1", "http://nas:9000")
    assert (config.invoke_timeout_s, config.stream_timeout_s) == (60, 480)
    options = replace(OPTIONS, invoke_timeout_s=90.5, stream_timeout_s=3600)
    longer = decide_config(options, ports(), (4242, 4243, 4244), 3)
    assert (longer.invoke_timeout_s, longer.stream_timeout_s) == (90.5, 3600)


@pytest.mark.parametrize(
    ("asked", "num_cpus", "expected"),
    [
        pytest.param(None, 1, 1, id="one processor"),
        pytest.param(None, 3, 3, id="a few processors"),
        pytest.param(None, 96, 4, id="many processors"),
        pytest.param(7, 2, 7, id="as many as asked"),
    ],
)
def test_how_many_gateway_workers_there_are(
    asked: int | None, num_cpus: int, expected: int
) -> None:
    config = decide_config(
        replace(OPTIONS, gateway_workers=asked), ports(), (4242, 4243, 4244), num_cpus
    )
    assert config.gateway_workers == expected


def test_options_reach_the_background_unchanged() -> None:
    options = replace(OTHER_S3, region="eu-west-1", insecure_no_auth=True)
    assert decode_options(encode_options(options)) == options
