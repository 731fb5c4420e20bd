"""`hostelry deploy`."""

from typing import Annotated

import typer

from hostelry.base.errors import INTERRUPTED
from hostelry.cli.home_option import (
    HomeOption,
    JsonOption,
    home_at,
    load_home,
    print_json,
)

SourceArgument = Annotated[
    str,
    typer.Argument(
        help=(
            "Model to deploy: a folder, a file, a .tar.gz, s3://BUCKET/PREFIX/, a "
            "model of the hub (ORGANISATION/NAME), or an image "
            "(REGISTRY/NAME:TAG)."
        ),
        show_default=False,
    ),
]
AdaptersOption = Annotated[
    str | None,
    typer.Option(
        help=(
            "LoRA adapters: a folder with one or several adapters, archives in S3, "
            "or an adapter of the hub."
        ),
        show_default=False,
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option("--as", help="Kind of model: llm, triton, graph, image, or FRAMEWORK[:VERSION]."),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        help="Name of the endpoint and its model. Default: derived from the source.",
        show_default=False,
    ),
]
InstanceTypeOption = Annotated[
    str | None,
    typer.Option(
        help="Instance type. Default: the smallest type that holds the copies.",
        show_default=False,
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        help=("Environment variable of the model server, as NAME=VALUE. Can be repeated.")
    ),
]
MemoryOption = Annotated[
    int | None,
    typer.Option(
        min=128, help=("Memory to reserve per copy. Default: estimated from the model's files.")
    ),
]


def deploy(  # noqa: PLR0913 - a command's options
    source: SourceArgument,
    name: NameOption = None,
    adapters: AdaptersOption = None,
    instance_type: InstanceTypeOption = None,
    copies: Annotated[
        int | None, typer.Option(help="Number of copies. Default: 1, or the current number.")
    ] = None,
    min_copies: Annotated[
        int | None,
        typer.Option(
            "--min", help="Minimum number of copies. 0 stops all copies when there are no calls."
        ),
    ] = None,
    max_copies: Annotated[
        int | None, typer.Option("--max", help="Maximum number of copies under load.")
    ] = None,
    env: EnvOption = None,
    kind: KindOption = None,
    memory_mb: MemoryOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the steps without carrying them out.")
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy a model: print the plan, upload the files, start it, and show how to call it.

    Run the command again to change what differs, or to continue after an interruption.

    Example: hostelry deploy ./smollm2 --adapters ./adapters

    Example: hostelry deploy model.joblib --min 0 --max 3

    Example: hostelry deploy localhost/lengths:1 --plan
    """
    # Imported here, because other commands do not need botocore.
    from hostelry.cli.deploy.plan import DeployOptions
    from hostelry.cli.deploy.run import run_deploy
    from hostelry.cli.deploy.source import read_environment

    at = home_at(home)
    running = load_home(at)
    options = DeployOptions(
        source=source,
        name=name or "",
        adapters=adapters,
        kind=kind,
        memory_mb=memory_mb,
        instance_type=instance_type,
        copies=copies,
        min_copies=min_copies,
        max_copies=max_copies,
        environment=read_environment(env or []),
    )
    try:
        document = run_deploy(options, at, running, plan_only=plan, as_json=as_json)
    except KeyboardInterrupt:
        typer.echo(
            "hostelry: interrupted. Nothing is lost: the same command continues where it ended",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(document)
