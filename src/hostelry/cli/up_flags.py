"""The longer options of `hostelry up`: their types and help texts."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.home.store_option import VARIABLE

PortOption = Annotated[
    int | None,
    typer.Option(
        help="Port of the gateway. [default: 8787, or a free port if 8787 is taken]",
        show_default=False,
    ),
]
S3PortOption = Annotated[
    int | None,
    typer.Option(
        help=("Port of the object store. [default: 8788, or a free port if 8788 is taken]"),
        show_default=False,
    ),
]
ClusterHostOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "Address at which the platform's other hosts reach this host, over TLS. [default: none]"
        ),
        show_default=False,
    ),
]
ClusterPortOption = Annotated[
    int | None,
    typer.Option(help="Port of --cluster-host. [default: 7443]", show_default=False),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option(
        help="PEM file of the authority that signs the cluster's certificates.", show_default=False
    ),
]
TlsCertOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "PEM file of your certificate for other hosts, with its chain. It must "
            "name spiffe://CLUSTER/control/NAME. [default: Hostelry makes and "
            "renews a certificate]"
        ),
        show_default=False,
    ),
]
TlsKeyOption = Annotated[
    str | None, typer.Option(help="PEM file of the key of --tls-cert.", show_default=False)
]
HttpsCertOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "PEM file of a certificate with its chain. The gateway and the S3 port "
            "then serve HTTPS."
        ),
        show_default=False,
    ),
]
HttpsKeyOption = Annotated[
    str | None, typer.Option(help="PEM file of the key of --https-cert.", show_default=False)
]
HttpsCaOption = Annotated[
    str | None,
    typer.Option(
        help=("PEM file of the authority that signed --https-cert, if it is not a public one."),
        show_default=False,
    ),
]
PrintUnitOption = Annotated[
    bool,
    typer.Option("--print-unit", help="Print a systemd unit that runs this command and exit."),
]
S3EndpointOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "URL of an S3 to use instead of the embedded object store. Its keys "
            "are read from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        ),
        show_default=False,
    ),
]
RegionOption = Annotated[
    str | None, typer.Option(help="Region, set at the first start. [default: us-east-1]")
]
AccountOption = Annotated[
    str | None, typer.Option(help="Account id, set at the first start. [default: 111122223333]")
]
NoAuthOption = Annotated[
    bool,
    typer.Option(
        "--insecure-no-auth", help="Accept unsigned requests. Only possible on a loopback address."
    ),
]
AnyRoleOption = Annotated[
    bool,
    typer.Option(
        "--any-role",
        help=("Accept models whose ExecutionRoleArn names a role that does not exist here."),
    ),
]
NoMirrorProcessOption = Annotated[
    bool,
    typer.Option(
        "--no-mirror-process", help="Mirror requests to shadow variants in the gateway's workers."
    ),
]
NoConsoleOption = Annotated[
    bool, typer.Option("--no-console", help="Do not serve the web console at /console.")
]
InvokeTimeoutOption = Annotated[
    float, typer.Option(help="Time limit of an invocation, in seconds.")
]
StreamTimeoutOption = Annotated[
    float, typer.Option(help="Time limit of a streamed answer or an OpenAI call, in seconds.")
]
CacheOption = Annotated[
    float, typer.Option(help="Disk limit for downloaded artifacts, per instance.")
]
FilesOption = Annotated[
    float, typer.Option(help="Disk limit per account for files of OpenAI's API (/v1/files).")
]
FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help=("Backup to restore into the empty home before the start (see `hostelry backup`)."),
        show_default=False,
    ),
]
DetachOption = Annotated[
    bool,
    typer.Option("--detach", help="Run in the background, and return when the platform is ready."),
]
LogsDaysOption = Annotated[
    int, typer.Option(help="Days to keep log events of groups without a retention setting.")
]
LogFormatOption = Annotated[
    str, typer.Option(help="Format of the platform's logs: text or json.", metavar="text|json")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Number of gateway processes. [default: one per CPU, up to 4]",
        show_default=False,
    ),
]
DrainOption = Annotated[
    float,
    typer.Option(
        help=("Seconds before a stop in which /health answers 503 and requests are still served.")
    ),
]
PaceOption = Annotated[
    float,
    typer.Option(
        help=(
            "Divide AWS's waits of minutes (cooldowns, bake times, provisioning "
            "time-outs) by this number."
        )
    ),
]
AtZeroOption = Annotated[
    str,
    typer.Option(
        help=(
            "Requests while there is no copy: hold (requests wait while a copy "
            "starts) or compat (requests fail as on AWS). The tag hostelry:zero "
            "overrides this setting for an endpoint or component."
        )
    ),
]
CopyUserOption = Annotated[
    str,
    typer.Option(
        help=(
            "User of copies that are programs: auto (a separate user per copy, if "
            "Hostelry runs as root), none (Hostelry's user), or the name or number "
            "of one unprivileged user for all copies."
        ),
        metavar="auto|none|NAME|UID",
    ),
]
HoldLimitOption = Annotated[
    float | None,
    typer.Option(
        help=(
            "Maximum number of seconds that a request waits for a copy. [default: "
            "the request's time limit]"
        ),
        show_default=False,
    ),
]
HoldRequestsOption = Annotated[
    int, typer.Option(help="Maximum number of requests that wait for copies.")
]
HoldEachOption = Annotated[
    int, typer.Option(help="Maximum number of requests that wait for one endpoint or component.")
]
HoldMbOption = Annotated[float, typer.Option(help="Maximum total size of the requests that wait.")]
ServerlessIdleOption = Annotated[
    float, typer.Option(help="Seconds without a request before a serverless environment ends.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        envvar=VARIABLE,
        show_envvar=True,
        help=(
            "Database of the platform's records: postgresql://USER@HOST/DATABASE, "
            "or sqlite for a file in the home. Give a password in PGPASSWORD or "
            "PGPASSFILE. [default: as at the last start, or sqlite]"
        ),
        show_default=False,
        metavar="URL|sqlite",
    ),
]
FleetOption = Annotated[
    str,
    typer.Option(
        help=(
            "Where instances run: local (processes on this machine) or ray (actors "
            "on a Ray cluster)."
        ),
        metavar="local|ray",
    ),
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        help=("HOST:PORT of the Ray cluster's head node. [default: the cluster on this machine]"),
        metavar="HOST:PORT",
        show_default=False,
    ),
]
RayRuntimeEnvOption = Annotated[
    Path | None,
    typer.Option(
        help=(
            "YAML or JSON file with Ray's runtime environment for instances, which "
            "must include Hostelry. [default: the packages installed on the nodes]"
        ),
        show_default=False,
    ),
]
NodeDirOption = Annotated[
    Path | None,
    typer.Option(
        help=("Folder for instances on Ray nodes. [default: in the node's temporary folder]"),
        show_default=False,
    ),
]
