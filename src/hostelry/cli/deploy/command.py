"""`hostelry deploy`."""

from typing import Annotated

import typer

from hostelry.cli.home_option import (
    HomeOption,
    JsonOption,
    home_at,
    home_flag,
    print_json,
    settled,
)

INTERRUPTED = 130  # as a shell has it of SIGINT
SourceArgument = Annotated[
    str,
    typer.Argument(
        help="A folder, file or .tar.gz; s3://BUCKET/PREFIX/; a model of the hub "
        "(ORGANISATION/NAME); an image (REGISTRY/NAME:TAG).",
        show_default=False,
    ),
]
AdaptersOption = Annotated[
    str | None,
    typer.Option(
        help="LoRA adapters: a folder of one or of several, archives in S3, one of the hub.",
        show_default=False,
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option("--as", help="What it is: llm, triton, graph, image, or FRAMEWORK[:VERSION]."),
]


def deploy(  # noqa: PLR0913 - one parameter an option of the command
    source: SourceArgument,
    name: Annotated[
        str | None, typer.Option(help="Its name. Default: the source's.", show_default=False)
    ] = None,
    adapters: AdaptersOption = None,
    instance_type: Annotated[
        str | None,
        typer.Option(help="Default: the smallest that holds its copies.", show_default=False),
    ] = None,
    copies: Annotated[
        int | None, typer.Option(help="Copies. Default: 1, or as many as there are.")
    ] = None,
    min_copies: Annotated[
        int | None, typer.Option("--min", help="The fewest copies; 0: none without calls.")
    ] = None,
    max_copies: Annotated[
        int | None, typer.Option("--max", help="The most copies, as load asks for.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE, a variable of its server; may be repeated."),
    ] = None,
    kind: KindOption = None,
    memory_mb: Annotated[
        int | None, typer.Option(min=128, help="Memory of a copy. Default: by its files.")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would do, and end.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deploy a model: say what will be done, upload it, have it served, show how to call it.

    Run again it changes only what differs; after an interruption it continues.

    Example: hostelry deploy ./smollm2 --adapters ./adapters

    Example: hostelry deploy model.joblib --min 0 --max 3

    Example: hostelry deploy localhost/lengths:1 --plan
    """
    from hostelry.cli.deploy.run import (  # botocore; other commands need none
        DeployRequest,
        run_deploy,
    )

    at = home_at(home)
    config, credentials = settled(at)
    request = DeployRequest(
        source=source,
        name=name,
        adapters=adapters,
        instance_type=instance_type,
        copies=copies,
        min_copies=min_copies,
        max_copies=max_copies,
        environment=env or [],
        kind=kind,
        memory_mb=memory_mb,
        plan_only=plan,
        as_json=as_json,
        home_flag=home_flag(at.root),
    )
    try:
        document = run_deploy(request, at, config, credentials)
    except KeyboardInterrupt:
        typer.echo(
            "hostelry: interrupted. Nothing is lost: the same command continues where it ended",
            err=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        print_json(document)
