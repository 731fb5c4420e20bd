"""`hostelry rm`: endpoints and components with everything that was made for them alone."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.printable import one_line
from hostelry.cli import completion as completed
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.models.removal import Removal, held_resources, planned_removal, removal_lines
from hostelry.cli.models.scale import target_id
from hostelry.cli.named import (
    NAME_OF,
    NamedModel,
    NameKind,
    UnknownModelNameError,
    api_errors,
    describe,
    find_named,
    patient_client,
)
from hostelry.home.aws_client import aws_client
from hostelry.home.home import Home

PATIENCE_S = 600.0
LOOK_EVERY_S = 0.25
MAX_DELETED_AT_ONCE = 1000  # objects in one DeleteObjects call


def rm(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Names of endpoints, components or adapters.", autocompletion=completed.served
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    with_data: Annotated[
        bool,
        typer.Option(
            "--with-data", help="Also remove the models' artifacts from the object store."
        ),
    ] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove endpoints, components or adapters, with the resources that only they use.

    With an endpoint go its components, adapters, configuration, models and scalable targets.
    Resources that others use stay, and are listed. A name that does not exist is not an error.
    After an interruption, run the command again.

    Exit code 1 if it cannot ask for confirmation and --yes is missing, or if a resource still
    exists after ten minutes.

    Example: hostelry rm chat

    Example: hostelry rm llama-pirate llama-es --yes
    """
    remove_named(home_at(home), names, yes=yes, with_data=with_data, as_json=as_json)


def remove_named(
    home: Home, names: Sequence[str], *, yes: bool, with_data: bool, as_json: bool
) -> None:
    """Remove the named resources, as `rm` does."""
    config, credentials = load_home(home)
    sagemaker = patient_client("sagemaker", config, credentials)
    scaling = patient_client("application-autoscaling", config, credentials)
    with api_errors(config):
        named, unknown = found_names(sagemaker, names)
        needs_all = with_data or bool(unknown)
        held = held_resources(sagemaker, scaling, [] if needs_all else named)
        leftovers = [it for it in unknown if it in held.configs or it in held.models]
        removal = planned_removal(named, held, leftovers, with_data=with_data)
        for name, why in unknown.items():
            if name not in leftovers:
                typer.echo(f"hostelry: {why} (nothing to remove)", err=True)
        confirm_removal(removal, yes=yes, quiet=as_json)
        s3 = aws_client("s3", config, credentials, read_timeout_s=60.0)
        Remover(sagemaker, scaling, s3).remove(removal)
    if as_json:
        print_json({**dict(removal.kinds()), "kept": removal.kept})


def found_names(sagemaker: Any, names: Sequence[str]) -> tuple[list[NamedModel], dict[str, str]]:
    """The resources of the names, and the reason for each unknown name. Raises TerminalError."""
    named: list[NamedModel] = []
    unknown: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            found = find_named(sagemaker, name, NameKind.ENDPOINT)
        except UnknownModelNameError as error:
            unknown[name] = str(error)
            continue
        if found.adapter is not None:
            raise TerminalError(
                f"{found.adapter} is not a component: it is in the archive of {found.component}, "
                "and is removed with that component alone"
            )
        named.append(found)
    return named, unknown


def confirm_removal(removal: Removal, *, yes: bool, quiet: bool) -> None:
    """Show the removal and ask for confirmation. Raises TerminalError if it is refused."""
    lines = removal_lines(removal)
    if lines and not quiet:
        typer.echo("\n".join(lines), err=True)
    if yes or not any(True for _ in removal.kinds()):
        return
    if not sys.stdin.isatty():
        raise TerminalError("nothing is removed: standard input is not a terminal, so give --yes")
    typer.confirm("Remove?", abort=True, err=True)


class Remover:
    """Removes one kind after another, and waits until each kind is gone."""

    def __init__(self, sagemaker: Any, scaling: Any, s3: Any) -> None:
        self._sagemaker = sagemaker
        self._scaling = scaling
        self._s3 = s3

    def remove(self, removal: Removal) -> None:
        """Remove everything. Raises TerminalError for a resource that still exists too late."""
        for resource_id in removal.targets:
            self._deregister(resource_id)
        for kind, names in (
            ("inference_component", removal.adapters),
            ("inference_component", removal.components),
            ("endpoint", removal.endpoints),
            ("endpoint_config", removal.configs),
            ("model", removal.models),
        ):
            self._remove_all(kind, names)
        for uri in removal.data:
            report(f"data {uri} removed, {self._remove_data(uri)} objects")

    def _deregister(self, resource_id: str) -> None:
        self._call(self._scaling.deregister_scalable_target, **target_id(resource_id))
        report(f"scalable target {resource_id} removed")

    def _remove_all(self, kind: str, names: Sequence[str]) -> None:
        left, began_s = list(names), monotonic_s()
        delete = getattr(self._sagemaker, f"delete_{kind}")
        words = kind.replace("_", " ")
        why: dict[str, str] = {}
        while left:
            # A busy resource refuses its removal, which is then tried again. Accepted calls are not
            # repeated, because each of them is a step of the cost.
            asked = [it for it in left if why.get(it) != ""]
            why |= {it: self._call(delete, **{NAME_OF[kind]: it}) for it in asked}
            for name in [it for it in left if describe(self._sagemaker, kind, it) is None]:
                left.remove(name)
                report(f"{words} {name} removed, {monotonic_s() - began_s:.1f} s")
            if left and monotonic_s() - began_s > PATIENCE_S:
                reason = why[left[0]] or "it is still being deleted"
                raise TerminalError(
                    f"{words} {left[0]} is not gone within {PATIENCE_S:g} s: {one_line(reason)}"
                )
            time.sleep(LOOK_EVERY_S if left else 0.0)

    def _call(self, call: Callable[..., Any], **given: str) -> str:
        """Why the platform refuses a removal. Empty if the resource is already gone."""
        from botocore.exceptions import ClientError

        try:
            call(**given)
        except ClientError as error:
            return str(error.response.get("Error", {}).get("Message", error))
        return ""

    def _remove_data(self, uri: str) -> int:
        """Remove an object, or all objects of a folder. Returns their number."""
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        number = 0
        for keys in _batches(self._keys(bucket, key)):
            self._s3.delete_objects(
                Bucket=bucket, Delete={"Objects": [{"Key": it} for it in keys], "Quiet": True}
            )
            number += len(keys)
        return number

    def _keys(self, bucket: str, key: str) -> Iterator[str]:
        folder = f"{key.rstrip('/')}/"
        try:
            for row in rows_below(self._s3, bucket, key.rstrip("/")):
                if row in (key, folder) or row.startswith(folder):
                    yield row
        except self._s3.exceptions.NoSuchBucket:
            return


def rows_below(s3: Any, bucket: str, prefix: str) -> Iterator[str]:
    """The keys that begin with `prefix`."""
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
        yield from (it["Key"] for it in page.get("Contents", ()))


def report(line: str) -> None:
    """Print a line of progress to standard error."""
    typer.echo(line, err=True)


def _batches(keys: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for key in keys:
        batch.append(key)
        if len(batch) == MAX_DELETED_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
