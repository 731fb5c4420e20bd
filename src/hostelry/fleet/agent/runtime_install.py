"""A framework's runtime that a copy needs and this machine lacks: installed, or refused.

The installation is a process of its own (`hostelry runtimes install --wait`), which waits for one
that is under way: copies that need the same runtime share it. Ended half-way it leaves nothing.
"""

from collections import deque
from collections.abc import Callable, Mapping

from hostelry.base.clock import monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.base.runtimes import VARIABLE, installed, runtimes_folder
from hostelry.fleet.agent.noted_process import run_noted
from hostelry.fleet.rules.interpreter import PYTHON

POLICY = "HOSTELRY_MISSING_RUNTIMES"
INSTALL, REFUSE = "install", "refuse"
COMMAND = (*PYTHON, "-m", "hostelry.cli.main", "runtimes", "install", "--wait")
SHOWN_LINES = 20
REPORT_EVERY_S = 5.0
Report = Callable[[str], None]


async def ensure_runtime(
    runtime: str, operator: Mapping[str, str], note: Report, waiting: Report
) -> None:
    """Install the runtime with that folder name unless it is there.

    `note` takes each line of the installation, `waiting` what a status shows meanwhile. Raises
    TerminalError where the operator refuses it, or with the last lines of what failed.
    """
    folder = runtimes_folder(operator)
    if installed(folder, runtime) is not None:
        return
    name = runtime.replace("-", ":", 1)
    policy = operator.get(POLICY) or INSTALL
    if policy == REFUSE:
        raise TerminalError(
            f"The runtime {name} is not installed, and the operator has {POLICY}={REFUSE}. "
            f"Install it with: hostelry runtimes install {name}"
        )
    if policy != INSTALL:
        raise TerminalError(
            f"{POLICY} of `hostelry up` is {policy[:80]!r}; it must be {INSTALL} or {REFUSE}"
        )
    await _install(name, {**operator, VARIABLE: str(folder)}, note, waiting)


async def _install(
    name: str, environment: Mapping[str, str], note: Report, waiting: Report
) -> None:
    began_s = monotonic_s()
    last: deque[str] = deque(["starting"], maxlen=SHOWN_LINES)

    def report() -> None:
        waiting(f"installing the runtime {name} for {monotonic_s() - began_s:.0f} s: {last[-1]}")

    def take(line: str) -> None:
        last.append(line)
        note(line)

    async def look() -> None:
        report()

    note(f"the runtime {name} is not on this machine: installing it")
    report()
    code = await run_noted((*COMMAND, name), environment, take, look, REPORT_EVERY_S)
    if code:
        raise TerminalError(f"The runtime {name} cannot be installed: " + "\n".join(last))
