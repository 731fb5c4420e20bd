"""Last resort of `hostelry down`: ends every process of the local fleet."""

import signal
from pathlib import Path

from hostelry.base.proc import ProcessIdentity
from hostelry.fleet.host.processes import is_alive, send
from hostelry.fleet.records import InstanceFolder

GRACE_S = 10.0


def stop_everything(root: Path, grace_s: float = GRACE_S) -> None:
    """End every agent and copy recorded under `root`, the folder of instances; blocks.

    Copies get `grace_s` after the TERM. Agents are killed at once: their state is on disk. Works if
    agents are dead or hung; idempotent.
    """
    if not root.is_dir():
        return
    folders = [InstanceFolder(path) for path in root.resolve().iterdir() if path.is_dir()]
    # Agents first: a living one would restart its copies.
    agents = [agent for folder in folders for agent in folder.load_agents() if is_alive(agent)]
    send(agents, signal.SIGKILL)
    if not any(folder.copy_ids() for folder in folders):
        return
    # Imported late: without a copy, most of this function's time would be this import.
    from hostelry.fleet.launch.copy_launcher import end_copies
    from hostelry.fleet.launch.limited_process import release

    copies = [group for folder in folders for group in _copies(folder)]
    end_copies(copies, grace_s)
    for folder, _ in copies:
        release(folder)


def _copies(folder: InstanceFolder) -> list[tuple[Path, ProcessIdentity | None]]:
    copies = [folder.copy(copy_id) for copy_id in folder.copy_ids()]
    records = [(copy.root, copy.load()) for copy in copies]
    return [(path, record.process if record else None) for path, record in records]
