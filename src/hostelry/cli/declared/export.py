"""`hostelry export`: what is there as a document that `hostelry apply` takes."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from hostelry.base.errors import TerminalError
from hostelry.cli.completion import names
from hostelry.cli.declared.aws import AwsAtPlatform
from hostelry.cli.declared.exported import exported
from hostelry.cli.declared.observation import observed_state
from hostelry.cli.declared.resource import ResourceKind
from hostelry.cli.declared.schema import near_misses
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, print_json, settled
from hostelry.graph.strict_yaml import StrictLoader

HEADER = "# Written by `hostelry export`; `hostelry apply -f` makes it again.\n"
WIDTH = 100


class DocumentDumper(yaml.SafeDumper):
    """PyYAML's writer; quotes also what only `StrictLoader` takes for something else than text."""


for _first, _resolvers in StrictLoader.yaml_implicit_resolvers.items():
    for _tag, _pattern in _resolvers:
        DocumentDumper.add_implicit_resolver(_tag, _pattern, [_first])


def export(
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint",
            "-e",
            help="Export only this endpoint and its resources. Can be repeated.",
            autocompletion=names.endpoints,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write. Default: print to standard output."),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write models, endpoints, components, scaling and alarms as a document for `hostelry apply`.

    Example: hostelry export --endpoint shop -o shop.yaml
    """
    config, credentials = settled(home_at(home))
    observed = observed_state(
        AwsAtPlatform(config, credentials), lambda _: True, credentials.role_arn
    )
    there = [it.key.name for it in observed.of(ResourceKind.ENDPOINT)]
    for name in endpoint or ():
        if name not in there:
            near = near_misses(name, there) or f"there are {', '.join(there) or 'none'}"
            raise TerminalError(f"there is no endpoint {name}; {near}")
    document = exported(observed, endpoint or ())
    if as_json:
        print_json(document)
    elif output is None:
        typer.echo(document_text(document), nl=False)
    else:
        write_document(output, document_text(document))


def document_text(document: dict[str, Any]) -> str:
    """A document as YAML."""
    text = yaml.dump(
        document, Dumper=DocumentDumper, sort_keys=False, allow_unicode=True, width=WIDTH
    )
    return HEADER + text


def write_document(path: Path, text: str) -> None:
    """Write a file, whole or not at all; raises TerminalError where that cannot be done."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise TerminalError(f"{path} cannot be written: {error.strerror}") from None
