"""A group of commands. Each command is imported when it runs, not when the group is listed."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from math import isnan
from typing import Any

import msgspec
import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from hostelry.base.errors import UsageError


class CommandEntry(msgspec.Struct, frozen=True):
    """A command in the list. `target` is MODULE:NAME of its function or group."""

    name: str
    target: str
    short_help: str
    context_settings: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def load(self) -> Any:
        """Import the command's module and return the command."""
        module, _, attribute = self.target.partition(":")
        found = getattr(import_module(module), attribute)
        if isinstance(found, typer.Typer):
            group = get_group(found)
            group.name, group.short_help = self.name, self.short_help
            return group
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        settings = dict(self.context_settings)
        alone.command(
            self.name, cls=CheckedCommand, short_help=self.short_help, context_settings=settings
        )(found)
        return get_command(alone)


class CheckedCommand(TyperCommand):
    """A command that refuses NaN as a number, because NaN passes every bound check."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options and return the other arguments. Raises UsageError for NaN."""
        rest = super().parse_args(ctx, args)
        for option in self.params:
            value = ctx.params.get(option.name)
            if isinstance(value, float) and isnan(value):
                raise UsageError(f"{option.opts[0]} nan: expected a number")
        return rest


class ListedCommand(TyperCommand):
    """Name and short help of a command that is not imported yet."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(entry.name, short_help=entry.short_help)
        self.entry = entry


class LazyGroup(TyperGroup):
    """Commands registered with typer, then the commands in `entries`, which a subclass sets."""

    entries: tuple[CommandEntry, ...] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        registered = dict(self.commands)
        self.commands = {it.name: ListedCommand(it) for it in self.entries} | registered

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return the command that `args` begin with."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, _load(command), rest

    def load_all(self) -> None:
        """Import every command, for callers that look at all commands."""
        self.commands = {name: _load(command) for name, command in self.commands.items()}


def lazy_group(entries: Iterable[CommandEntry]) -> type[LazyGroup]:
    """The class of a group with these commands."""
    return type("LazyGroupOfEntries", (LazyGroup,), {"entries": tuple(entries)})


def _load(command: Any) -> Any:
    return command.entry.load() if isinstance(command, ListedCommand) else command
