"""Looks at a copy's processes, to report the isolation that they have."""

import asyncio
from pathlib import Path

from hostelry.base.errors import TerminalError
from hostelry.domain.copy import CopySpec
from hostelry.domain.isolation import CopyLevel, HeldIsolation, read_isolation
from hostelry.fleet.host.isolation import see_namespace, see_processes, see_surroundings
from hostelry.fleet.host.processes import SCANS, find_members
from hostelry.fleet.records import CopyRecord
from hostelry.fleet.rules.isolation import judge_isolation


def find_asked_level(spec: CopySpec) -> CopyLevel | None:
    """The level that the copy's model asks for. Raises TerminalError if it is unknown."""
    try:
        return read_isolation(spec.container.environment).copy
    except ValueError as error:
        raise TerminalError(f"{error}.") from error


async def look_at_isolation(spec: CopySpec, record: CopyRecord, folder: Path) -> HeldIsolation:
    """The isolation of the copy's processes now, compared with the agent and all other copies."""
    table = await SCANS.fresh()
    members = [it.pid for it in find_members(table, folder, record.process)]
    leader = 0 if record.process is None else record.process.pid
    return await asyncio.to_thread(_look, spec, record, folder, (leader, members))


def _look(
    spec: CopySpec, record: CopyRecord, folder: Path, processes: tuple[int, list[int]]
) -> HeldIsolation:
    asked, (leader, members) = find_asked_level(spec), processes
    is_image = record.rule is not None and record.rule.is_container
    if is_image:  # the engine's processes and the proxy run outside
        outside = see_namespace("self", "pid")
        members = [it for it in members if it == leader or see_namespace(it, "pid") != outside]
    needs = spec.requirements
    return judge_isolation(
        asked,
        see_processes(members),
        see_surroundings(folder),
        is_image=is_image,
        max_memory_bytes=None if needs is None else needs.max_memory_bytes,
    )
