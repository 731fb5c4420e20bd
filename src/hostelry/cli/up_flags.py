"""The longer options of `hostelry up`: their types and help texts."""

from pathlib import Path
from typing import Annotated

import typer

from hostelry.server.store_option import VARIABLE

PortOption = Annotated[
    int | None,
    typer.Option(
        help="Port of the gateway. [default: 8787, or a free one where that is taken]",
        show_default=False,
    ),
]
S3PortOption = Annotated[
    int | None,
    typer.Option(
        help="Port of the object store. [default: 8788, or a free one where that is taken]",
        show_default=False,
    ),
]
ClusterHostOption = Annotated[
    str | None,
    typer.Option(
        help="This host's address for the platform's other hosts, over TLS. [default: none]",
        show_default=False,
    ),
]
ClusterPortOption = Annotated[
    int | None,
    typer.Option(help="Port at --cluster-host. [default: 7443]", show_default=False),
]
TlsCaOption = Annotated[
    str | None,
    typer.Option(help="What signs the cluster's certificates, PEM.", show_default=False),
]
TlsCertOption = Annotated[
    str | None,
    typer.Option(
        help="Your own certificate for other hosts, PEM, with its chain; it names "
        "spiffe://CLUSTER/control/NAME. [default: hostelry makes and renews one]",
        show_default=False,
    ),
]
TlsKeyOption = Annotated[
    str | None, typer.Option(help="The key of --tls-cert, PEM.", show_default=False)
]
HttpsCertOption = Annotated[
    str | None,
    typer.Option(
        help="A certificate with its chain, PEM: gateway and S3 port speak HTTPS with clients.",
        show_default=False,
    ),
]
HttpsKeyOption = Annotated[
    str | None, typer.Option(help="The key of --https-cert, PEM.", show_default=False)
]
HttpsCaOption = Annotated[
    str | None,
    typer.Option(
        help="Your own authority, PEM, where no public one signed --https-cert.",
        show_default=False,
    ),
]
PrintUnitOption = Annotated[
    bool,
    typer.Option("--print-unit", help="Print a systemd unit that runs this command, and end."),
]
S3EndpointOption = Annotated[
    str | None,
    typer.Option(
        help="Use this S3 instead of the embedded one; its keys are taken from "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        show_default=False,
    ),
]
RegionOption = Annotated[
    str | None, typer.Option(help="Region, at the first up. [default: us-east-1]")
]
AccountOption = Annotated[
    str | None, typer.Option(help="Account id, at the first up. [default: 111122223333]")
]
NoAuthOption = Annotated[
    bool, typer.Option("--insecure-no-auth", help="Accept unsigned requests; loopback only.")
]
AnyRoleOption = Annotated[
    bool,
    typer.Option("--any-role", help="Accept models whose ExecutionRoleArn names no role here."),
]
NoMirrorProcessOption = Annotated[
    bool,
    typer.Option(
        "--no-mirror-process", help="Mirror requests to shadow variants in the gateway's workers."
    ),
]
NoConsoleOption = Annotated[
    bool, typer.Option("--no-console", help="Serve no web console at the gateway's /console.")
]
InvokeTimeoutOption = Annotated[
    float, typer.Option(help="Time limit of an invocation, in seconds.")
]
StreamTimeoutOption = Annotated[
    float, typer.Option(help="Time limit of a streamed answer or an OpenAI call, in seconds.")
]
CacheOption = Annotated[float, typer.Option(help="Artifacts kept on disk, per instance.")]
FilesOption = Annotated[
    float, typer.Option(help="Disk for an account's files of OpenAI's API (/v1/files).")
]
FromOption = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="A backup, restored into the empty home first (`hostelry backup`).",
        show_default=False,
    ),
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Return when ready; run in the background.")
]
LogsDaysOption = Annotated[
    int, typer.Option(help="Days that log events are kept where their group does not say.")
]
LogFormatOption = Annotated[
    str, typer.Option(help="Lines of the platform's own logs: text or json.", metavar="text|json")
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        help="Gateway processes. [default: one per CPU, at most 4]",
        show_default=False,
    ),
]
DrainOption = Annotated[
    float,
    typer.Option(
        help="Seconds before a stop for which /health answers 503 and requests are still served."
    ),
]
PaceOption = Annotated[
    float,
    typer.Option(
        help="Divide AWS's waits of minutes (cooldowns, bakes, provisioning time-outs) by this."
    ),
]
AtZeroOption = Annotated[
    str,
    typer.Option(
        help="Requests while there is no copy: hold (they wait, and one is started) or compat "
        "(AWS's error). The tag hostelry:zero overrides it for one endpoint or component."
    ),
]
CopyUserOption = Annotated[
    str,
    typer.Option(
        help="User of copies that are programs: auto (each its own user, where hostelry runs as "
        "root), none (the user of hostelry), or one unprivileged user for all, a name or a number.",
        metavar="auto|none|NAME|UID",
    ),
]
HoldLimitOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds that a request may wait for a copy. [default: its time limit]",
        show_default=False,
    ),
]
HoldRequestsOption = Annotated[int, typer.Option(help="Requests that wait for copies at once.")]
HoldEachOption = Annotated[int, typer.Option(help="... for one endpoint or component.")]
HoldMbOption = Annotated[float, typer.Option(help="... and how large they are together.")]
ServerlessIdleOption = Annotated[
    float, typer.Option(help="Seconds without a request after which a serverless environment ends.")
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        envvar=VARIABLE,
        show_envvar=True,
        help="Keep the platform's records in PostgreSQL: postgresql://USER@HOST/DATABASE, or sqlite"
        " for the home's own file again. A password is best in PGPASSWORD or PGPASSFILE. [default:"
        " as at the last up, or sqlite]",
        show_default=False,
        metavar="URL|sqlite",
    ),
]
FleetOption = Annotated[
    str,
    typer.Option(
        help="Where instances run: local (processes of this machine) or ray (actors of a cluster).",
        metavar="local|ray",
    ),
]
RayAddressOption = Annotated[
    str | None,
    typer.Option(
        help="HOST:PORT of the Ray cluster's head. [default: the cluster of this machine]",
        metavar="HOST:PORT",
        show_default=False,
    ),
]
RayRuntimeEnvOption = Annotated[
    Path | None,
    typer.Option(
        help="A YAML or JSON file: Ray's runtime environment for instances, with Hostelry in it. "
        "[default: what the nodes have installed]",
        show_default=False,
    ),
]
NodeDirOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder on Ray nodes for instances. [default: below the node's temporary folder]",
        show_default=False,
    ),
]
