"""`hostelry adapters`: the LoRA adapters of a base component."""

import json
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.files import expand_user
from hostelry.base.printable import one_line
from hostelry.cli import completion as names
from hostelry.cli.artifacts.files import (
    ARCHIVE_SUFFIXES,
    FoundFile,
    ObjectOrder,
    allowed_roots,
    file_at,
    hash_file,
    hub_folder,
    pack_files,
)
from hostelry.cli.artifacts.upload import make_bucket, shown_upload
from hostelry.cli.deploy.source import check_name
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.models.ls import NUM_THREADS, ModelRow, component_row, row_lines
from hostelry.cli.models.rm import remove_named
from hostelry.cli.named import (
    NamedModel,
    NameKind,
    api_errors,
    called_model,
    describe,
    list_rows,
    patient_client,
)
from hostelry.cli.work_reporter import WorkReporter
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry.home.json_client import JsonClient
from hostelry.home.upload_lock import uploading

LOOK_EVERY_S = 0.25
S3, HUB = "s3://", "hf://"
Base = Annotated[
    str, typer.Argument(help="Name of the base component.", autocompletion=names.components)
]
adapters = typer.Typer(
    help="Add, remove and list the LoRA adapters of a base component.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")  # the first existing file counts
MAX_CONFIG_BYTES = 1024 * 1024
MAX_MEMBERS = 10_000


@adapters.command("add", short_help="Add an adapter to a running base.")
def add(
    base: Base,
    adapter: Annotated[str, typer.Argument(help="Name of the adapter's component.")],
    source: Annotated[
        str,
        typer.Argument(
            help=(
                "Adapter to add: a folder, a .tar.gz, s3://BUCKET/KEY.tar.gz, or a hub id ORG/NAME."
            )
        ),
    ],
    wait_s: Annotated[
        float, typer.Option("--wait", min=0.0, help="Maximum number of seconds to wait.")
    ] = 600.0,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload an adapter and add it to every copy of a base component, without a restart.

    A hub id is only looked up in this machine's cache of the hub. Adding the same adapter again is
    not an error: the command waits until the adapter is ready.

    Exit code 1 if the adapter is invalid, does not fit the base, or is not ready in time.

    Example: hostelry adapters add llama llama-pirate ./pirate
    """
    check_name("NAME", adapter)
    at = home_at(home)
    config, credentials = load_home(at)
    sagemaker = patient_client("sagemaker", config, credentials)
    with api_errors(config), uploading(at), WorkReporter(to_stderr=True) as reporter:
        model = find_base(sagemaker, base)
        require_free(sagemaker, model, adapter)
        uri = source
        if not source.startswith(S3):
            uri = upload_adapter(config, credentials, model, source, reporter)
        create(sagemaker, model, adapter, uri)
        shown = wait_in_service(sagemaker, adapter, wait_s, reporter)
    if as_json:
        print_json({"name": adapter, "base": model.component, "source": uri, "status": shown})
    else:
        typer.echo(f"{adapter} is {shown}: hostelry chat {adapter}")


@adapters.command("rm", short_help="Remove adapters of a base.")
def remove(
    base: Base,
    adapter: Annotated[
        list[str],
        typer.Argument(help="Names of the adapters' components.", autocompletion=names.components),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    with_data: Annotated[
        bool,
        typer.Option(
            "--with-data", help="Also remove the adapters' archives from the object store."
        ),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove adapter components of a base, after their current requests have ended.

    Example: hostelry adapters rm llama llama-pirate
    """
    config, credentials = load_home(home_at(home))
    sagemaker = patient_client("sagemaker", config, credentials)
    with api_errors(config):
        model = find_base(sagemaker, base)
        for name in adapter:
            shown = describe(sagemaker, "inference_component", name)
            own = (shown or {}).get("Specification", {}).get("BaseInferenceComponentName")
            if shown is not None and own != model.component:
                raise TerminalError(f"{name} is not an adapter of {model.component}")
    remove_named(
        home_at(home),
        [f"component/{it}" for it in adapter],
        yes=yes,
        with_data=with_data,
        as_json=as_json,
    )


@adapters.command("ls", short_help="List the adapters of a base with their state.")
def list_adapters(base: Base, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the adapter components of a base. Adapters inside the base's archive are not listed.

    Example: hostelry adapters ls llama
    """
    config, credentials = load_home(home_at(home))
    sagemaker = JsonClient("sagemaker", config, credentials)
    model = find_base(sagemaker, base)
    rows: list[ModelRow] = adapter_rows(sagemaker, model.endpoint, str(model.component))
    if as_json:
        print_json([msgspec.to_builtins(it) for it in rows])
    elif rows:
        typer.echo("\n".join(row_lines(rows, SystemClock().now())))
    else:
        typer.echo(f"{model.component} has none: `hostelry adapters add {base} NAME SOURCE`.")


def find_base(sagemaker: Any, name: str) -> NamedModel:
    """The base component of that name. Raises TerminalError for anything else."""
    model = called_model(sagemaker, name)
    if model.component is None:
        raise TerminalError(f"{name} is an endpoint of one model, and takes no adapters")
    if model.kind is NameKind.ADAPTER:
        raise TerminalError(f"{name} is an adapter itself: name its base")
    return model


def upload_adapter(
    config: UpConfig,
    credentials: Credentials,
    model: NamedModel,
    source: str,
    reporter: WorkReporter,
) -> str:
    """Upload the adapter's archive if the store lacks it, and return its address."""
    path = local_path(source)
    s3 = aws_client("s3", config, credentials, read_timeout_s=120.0)
    bucket = f"sagemaker-{credentials.region}-{credentials.account_id}"
    with tempfile.TemporaryDirectory(prefix="hostelry-adapter-") as scratch:
        archive = adapter_archive(path, Path(scratch))
        key = f"adapters/{model.component}/{hash_file(archive.path)[:32]}.tar.gz"
        uri = f"{S3}{bucket}/{key}"
        order = ObjectOrder(key=key, files=(archive,))
        if not has_object(s3, bucket, order):
            make_bucket(s3, bucket)
            shown_upload(s3, bucket, [order], uri, reporter)
    return uri


def local_path(source: str) -> Path:
    """The local folder or archive of a source. A hub id is looked up in its cache."""
    path = expand_user(source)
    if path.is_dir() or (path.is_file() and path.name.endswith(ARCHIVE_SUFFIXES)):
        return path
    if path.is_file():
        raise TerminalError(f"{source} is neither a folder nor a .tar.gz")
    name, _, revision = source.removeprefix(HUB).partition("@")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise TerminalError(f"there is no {source}: give a folder, a .tar.gz, s3:// or ORG/NAME")
    found = hub_folder(name, revision or None)
    if found is None:
        raise TerminalError(
            f"there is no folder {source}, and no such adapter in the hub's cache here: "
            f"`hf download {name}` gets it"
        )
    return found


def has_object(s3: Any, bucket: str, order: ObjectOrder) -> bool:
    """Whether the object exists with its full size."""
    from botocore.exceptions import ClientError

    try:
        shown = s3.head_object(Bucket=bucket, Key=order.key)
    except ClientError:
        return False
    return bool(shown["ContentLength"] == order.size_bytes)


def require_free(sagemaker: Any, model: NamedModel, adapter: str) -> None:
    """Raise TerminalError if the name belongs to another component than an adapter of `model`."""
    present = describe(sagemaker, "inference_component", adapter)
    base = (present or {}).get("Specification", {}).get("BaseInferenceComponentName")
    if present is not None and base != model.component:
        status = present["InferenceComponentStatus"]
        raise TerminalError(
            f"{adapter} is another component ({status}): `hostelry rm component/{adapter}` first"
        )


def create(sagemaker: Any, model: NamedModel, adapter: str, uri: str) -> None:
    """Create the component. Raises TerminalError if another component has the name."""
    present = describe(sagemaker, "inference_component", adapter)
    if present is not None:
        given = present.get("Specification", {})
        same = (
            given.get("BaseInferenceComponentName") == model.component
            and given.get("Container", {}).get("ArtifactUrl") == uri
        )
        if same and present["InferenceComponentStatus"] != "Failed":
            return
        status = present["InferenceComponentStatus"]
        what = f"that {status} adapter" if same else f"another component ({status})"
        raise TerminalError(f"{adapter} is {what}: `hostelry rm component/{adapter}` first")
    sagemaker.create_inference_component(
        InferenceComponentName=adapter,
        EndpointName=model.endpoint,
        Specification={
            "BaseInferenceComponentName": model.component,
            "Container": {"ArtifactUrl": uri},
        },
    )


def wait_in_service(sagemaker: Any, adapter: str, wait_s: float, reporter: WorkReporter) -> str:
    """Wait for InService.

    Raises TerminalError with the reason of a failure, or after the time limit.
    """
    began_s = monotonic_s()
    while True:
        shown = describe(sagemaker, "inference_component", adapter)
        if shown is None:
            raise TerminalError(f"{adapter} was removed meanwhile")
        status = str(shown["InferenceComponentStatus"])
        reporter.waits(status)
        if status == "InService":
            return status
        if status == "Failed":
            raise TerminalError(f"{adapter}: {one_line(shown.get('FailureReason', status))}")
        if monotonic_s() - began_s >= wait_s:
            raise TerminalError(f"{adapter} is {status} after {wait_s:g} s: see `hostelry ls`")
        time.sleep(LOOK_EVERY_S)


def adapter_archive(source: Path, scratch: Path) -> FoundFile:
    """Pack an adapter's folder into an archive in `scratch`. An archive stays as it is.

    Equal files give equal archives. Raises TerminalError if the source is not an adapter.
    """
    if source.is_dir():
        files = find_files(source)
        with open(files[0].path, "rb") as config:
            check_config(source, config.read(MAX_CONFIG_BYTES))
        source = pack_files(files, scratch / "adapter.tar.gz")
    else:
        check_config(source, _config_within(source))
    return file_at(source, source.name, str(source))


def find_files(folder: Path) -> list[FoundFile]:
    """The files of configuration and weights. Raises TerminalError if one is missing."""
    found = [it for it in WEIGHTS if (folder / it).is_file()]
    for wanted, is_there in ((CONFIG, (folder / CONFIG).is_file()), (" nor ".join(WEIGHTS), found)):
        if not is_there:
            raise TerminalError(f"{folder} is not an adapter: it has no {wanted}")
    roots = allowed_roots(folder)
    return [file_at(folder / it, it, str(folder), roots) for it in (CONFIG, found[0])]


def check_config(source: Path, content: bytes) -> None:
    """Raise TerminalError if a configuration does not describe a LoRA adapter."""
    try:
        config = json.loads(content)
    except (ValueError, RecursionError):
        raise TerminalError(f"{CONFIG} of {source} is not JSON") from None
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if kind != "LORA":
        raise TerminalError(
            f"{source} is not a LoRA adapter: peft_type of its {CONFIG} is {kind!r}"
        )


def _config_within(source: Path) -> bytes:
    """The configuration inside an archive."""
    try:
        with tarfile.open(source, "r:*") as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS:
                    break
                if Path(member.name).name == CONFIG and member.isfile():
                    file = archive.extractfile(member)
                    assert file is not None
                    return file.read(MAX_CONFIG_BYTES)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise TerminalError(f"{source} is not a readable archive: {error}") from None
    raise TerminalError(f"{source} is not an adapter: it has no {CONFIG}")


def adapter_rows(sagemaker: Any, endpoint: str, base: str) -> list[ModelRow]:
    """A row for each adapter component of `base`, by name."""
    listed = list_rows(
        sagemaker, "list_inference_components", "InferenceComponents", EndpointNameEquals=endpoint
    )
    others = [it for it in listed if it["InferenceComponentName"] != base]
    with ThreadPoolExecutor(NUM_THREADS) as threads:
        rows = list(threads.map(partial(component_row, sagemaker), others))
    mine = [it for it in rows if it is not None and it.base == base]
    return sorted(mine, key=lambda it: it.name)
