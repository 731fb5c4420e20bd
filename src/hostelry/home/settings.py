"""Declaration of a platform's settings: option, help text, limits, configuration and readers."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import msgspec

from hostelry.base.logging import FORMATS, TEXT
from hostelry.home.fleet_option import LOCAL

UP = ("up",)
GATEWAYS = ("up", "gateway")
CONTROLS = ("up", "control")
ALL = ("up", "gateway", "control")


class Rule(msgspec.Struct, frozen=True):
    """A check of a setting's value, and the end of its refusal."""

    allows: Callable[[Any], object]
    text: str


def within(least: float, most: float, text: str = "") -> Rule:
    """Allow numbers from `least` to `most`."""
    text = text or f"expected {least} or more and at most {most}"
    return Rule(lambda value: least <= value <= most, text)


def allow_choices(choices: Collection[str], text: str = "") -> Rule:
    """Allow the choices."""
    return Rule(choices.__contains__, text or f"expected one of {', '.join(choices)}")


PORT = within(1, 65535, "a port is a number from 1 to 65535")
TIMEOUT_S = within(1, 86400)


class PlatformSetting(msgspec.Struct, frozen=True):
    """An option of `up`, and of further `commands`.

    `config`: its field of `UpConfig`, if that has another name or value, which `convert` makes.
    `read_by`: the only service that reads the field. A change replaces no other process.
    """

    help: str
    rule: Rule | None = None
    commands: tuple[str, ...] = UP
    config: str = ""
    convert: Callable[[Any], Any] | None = None
    read_by: str = ""
    metavar: str | None = None
    envvar: str | None = None


def setting(default: Any, *about: Any, is_secret: bool = False, **more: Any) -> Any:
    """A field of a dataclass that is a `PlatformSetting`, of these arguments."""
    metadata = {"setting": PlatformSetting(*about, **more)}
    return field(default=default, repr=not is_secret, metadata=metadata)


def resolve_localhost(host: str) -> str:
    """The IP address to listen on."""
    return "127.0.0.1" if host == "localhost" else host


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """Settings that the configuration has under the names of their options."""

    host: str = setting(
        "127.0.0.1", "Address to listen on.", commands=GATEWAYS, convert=resolve_localhost
    )
    s3_endpoint: str | None = setting(
        None,
        "URL of an S3 to use instead of the embedded object store. Its keys are read from "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )
    insecure_no_auth: bool = setting(
        False, "Accept unsigned requests. Only possible on a loopback address.", read_by="gateway"
    )
    any_role: bool = setting(
        False,
        "Accept models whose ExecutionRoleArn names a role that does not exist here.",
        read_by="control",
    )
    invoke_timeout_s: float = setting(60.0, "Time limit of an invocation, in seconds.", TIMEOUT_S)
    stream_timeout_s: float = setting(
        480.0, "Time limit of a streamed answer or an OpenAI call, in seconds.", TIMEOUT_S
    )
    mirror_process: bool = setting(
        True,
        "Mirror requests to shadow variants in the gateway's workers.",
        commands=GATEWAYS,
        read_by="gateway",
    )
    pace: float = setting(
        1.0,
        "Divide AWS's waits of minutes (cooldowns, bake times, provisioning time-outs) by this "
        "number.",
        within(1, 3600, "expected 1 (AWS's own waits) to 3600"),
        read_by="control",
    )
    hold_limit_s: float | None = setting(
        None,
        "Maximum number of seconds that a request waits for a copy. [default: the request's time "
        "limit]",
        TIMEOUT_S,
        read_by="gateway",
    )
    hold_requests: int = setting(
        4096,
        "Maximum number of requests that wait for copies.",
        within(1, 1_000_000),
        GATEWAYS,
        read_by="gateway",
    )
    hold_requests_each: int = setting(
        1024,
        "Maximum number of requests that wait for one endpoint or component.",
        within(1, 1_000_000),
        GATEWAYS,
        read_by="gateway",
    )
    serverless_idle_s: float = setting(
        600.0,
        "Seconds without a request before a serverless environment ends.",
        TIMEOUT_S,
        read_by="control",
    )
    logs_days: int = setting(
        14,
        "Days to keep log events of groups without a retention setting.",
        within(1, 3653),
        read_by="control",
    )
    audit_days: int = setting(
        90, "Days to keep records of the audit log.", within(1, 3653), read_by="control"
    )
    audit_invocations: bool = setting(
        False,
        "Record each invocation in the audit log, with its caller and outcome.",
        commands=GATEWAYS,
        read_by="gateway",
    )
    log_format: str = setting(
        TEXT,
        "Format of the platform's logs: text or json.",
        allow_choices(FORMATS),
        ALL,
        metavar="text|json",
    )
    drain_s: float = setting(
        0.0,
        "Seconds before a stop in which /health answers 503 and requests are still served.",
        within(0, 3600),
        GATEWAYS,
        read_by="up",
    )
    fleet: str = setting(
        LOCAL,
        "Where instances run: local (processes on this machine) or ray (actors on a Ray cluster).",
        read_by="control",
        metavar="local|ray",
    )
    ray_address: str | None = setting(
        None,
        "HOST:PORT of the Ray cluster's head node. [default: the cluster on this machine]",
        read_by="control",
        metavar="HOST:PORT",
    )
