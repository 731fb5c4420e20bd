import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cases import case, cases

from hostelry.base.errors import TerminalError
from hostelry.home.home import Credentials, UpConfig, new_credentials
from hostelry.home.port_choice import ChosenPorts
from hostelry.home.up_options import (
    DEFAULT_ACCOUNT,
    UpOptions,
    check_options,
    configured_settings,
    decide_config,
    decide_credentials,
)
from hostelry.processes.background import decode_options, encode_options

OPTIONS = UpOptions(home=Path("/h"))
STORED = new_credentials("999988887777", "eu-west-1")
PAIR = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
OTHER_S3 = replace(OPTIONS, s3_endpoint="http://nas:9000")


@cases(
    "changes",
    case("the defaults", {}),
    case("every address, signed", {"host": "0.0.0.0"}),
    case("unsigned on IPv6 loopback", {"host": "::1", "insecure_no_auth": True}),
    case("unsigned on localhost", {"host": "localhost", "insecure_no_auth": True}),
    case("an S3 frees the S3 port", {"s3_endpoint": "https://nas.example", "s3_port": 8787}),
    case("a region with four parts", {"region": "us-gov-west-1"}),
    case("the ends of limits", {"invoke_timeout_s": 1, "stream_timeout_s": 86400}),
    case("one worker", {"gateway_workers": 1}),
    case(
        "as little waiting as may be",
        {"at_zero": "compat", "hold_limit_s": 5, "hold_requests": 1, "hold_mb": 1},
    ),
    case("the most workers", {"gateway_workers": 64}),
)
def test_options_that_are_allowed(changes: dict[str, Any]) -> None:
    check_options(replace(OPTIONS, **changes))


@cases(
    "changes, text",
    case("port zero", {"port": 0}, "--port 0"),
    case("a port beyond the last", {"s3_port": 65536}, "--s3-port 65536"),
    case("one port for two", {"port": 8787, "s3_port": 8787}, "both 8787"),
    case("a name instead of an address", {"host": "example.com"}, "--host example.com"),
    case("no address", {"host": ""}, "--host"),
    case("unsigned and open", {"host": "10.0.0.1", "insecure_no_auth": True}, "loopback only"),
    case("unsigned, open on IPv6", {"host": "::", "insecure_no_auth": True}, "loopback only"),
    case("thirteen digits", {"account_id": "1234567890123"}, "12 digits"),
    case(
        "digits of another script", {"account_id": "\N{ARABIC-INDIC DIGIT ONE}" * 12}, "12 digits"
    ),
    case("a region with a line break", {"region": "us-east-1\n"}, "--region"),
    case("no body at all", {"max_body_mb": 0}, "--max-body-mb 0"),
    case("not a number", {"max_body_mb": float("nan")}, "--max-body-mb nan"),
    case("slower than AWS", {"pace": 0.5}, "--pace 0.5"),
    case("a pace of no number", {"pace": float("nan")}, "--pace nan"),
    case("no cache at all", {"artifact_cache_gb": 0}, "--artifact-cache-gb 0"),
    case("a cache of no number", {"artifact_cache_gb": float("nan")}, "gb nan"),
    case("a stop in the past", {"drain_s": -1.0}, "--drain-s -1: expected 0"),
    case("a stop that never comes", {"drain_s": 1e9}, r"--drain-s 1e\+09"),
    case("no room for files", {"files_gb": 0}, "--files-gb 0: expected at least"),
    case("files without end", {"files_gb": float("inf")}, "--files-gb inf"),
    case("no time", {"invoke_timeout_s": 0}, "--invoke-timeout-s 0: expected 1"),
    case("time backwards", {"invoke_timeout_s": -60}, "--invoke-timeout-s -60"),
    case("a stream beyond a day", {"stream_timeout_s": 86401}, "at most 86400"),
    case("no duration", {"stream_timeout_s": float("nan")}, "stream-timeout-s nan"),
    case("for ever", {"stream_timeout_s": float("inf")}, "stream-timeout-s inf"),
    case("a body beyond the limit", {"max_body_mb": 5000}, "1024"),
    case("no worker", {"gateway_workers": 0}, "--gateway-workers 0: expected 1"),
    case("no such choice", {"at_zero": "wait"}, "--at-zero wait: expected hold"),
    case("no time to wait", {"hold_limit_s": 0}, "--hold-limit-s 0: expected 1"),
    case("waiting for NaN s", {"hold_limit_s": float("nan")}, "--hold-limit-s nan"),
    case("none may wait", {"hold_requests": 0}, "--hold-requests 0: expected 1"),
    case("fewer than none", {"hold_requests_each": -1}, "--hold-requests-each -1"),
    case("nothing may wait", {"hold_mb": 0.5}, "--hold-mb 0.5: expected 1"),
    case("no room for metrics", {"metrics_mb": 1}, "--metrics-mb 1: expected 8"),
    case("room of no number", {"metrics_mb": float("nan")}, "--metrics-mb nan"),
    case("too many workers", {"gateway_workers": 65}, "at most 64"),
    case("an endpoint without http", {"s3_endpoint": "nas:9000"}, "--s3-endpoint"),
    case("another scheme", {"s3_endpoint": "ftp://nas"}, "--s3-endpoint"),
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


@cases("stored", case("at the first up", None), case("later", STORED))
def test_another_s3s_keys_become_ours(stored: Credentials | None) -> None:
    decided = decide_credentials(OTHER_S3, stored, PAIR)
    assert (decided.access_key_id, decided.secret_access_key) == ("key", "secret")
    if stored is not None:
        assert decided.internal_key == stored.internal_key


@cases(
    "options, stored, environment, text",
    case("another S3 without keys", OTHER_S3, None, {}, "AWS_ACCESS_KEY_ID"),
    case("half a pair", OTHER_S3, None, {"AWS_ACCESS_KEY_ID": "key"}, "AWS_SECRET_ACCESS_KEY"),
    case(
        "keys that expire", OTHER_S3, STORED, {**PAIR, "AWS_SESSION_TOKEN": "t"}, "temporary keys"
    ),
    case("new region", replace(OPTIONS, region="us-west-2"), STORED, {}, "made for eu-west-1"),
    case(
        "new account",
        replace(OPTIONS, account_id="111122223333"),
        STORED,
        {},
        "made for 999988887777",
    ),
)
def test_keys_that_cannot_be_decided(
    options: UpOptions, stored: Credentials | None, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(TerminalError, match=text):
        decide_credentials(options, stored, environment)


def ports() -> ChosenPorts:
    """Ports that were free. The socket is not used."""
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


def test_options_and_configuration_have_the_same_defaults() -> None:
    configured = configured_settings(OPTIONS)
    config = UpConfig(control_port=4242)
    assert {name: getattr(config, name) for name in configured} == configured


@cases(
    "asked, num_cpus, expected",
    case("one processor", None, 1, 1),
    case("a few processors", None, 3, 3),
    case("many processors", None, 96, 4),
    case("as many as asked", 7, 2, 7),
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
