"""The supervisor with a real process that hangs whenever it is started."""

import asyncio
import signal
import sys
from pathlib import Path

from tests.cases import case, cases

from hostelry.fleet.host.processes import identify
from hostelry.home.home import Home
from hostelry.processes.leftovers import Stopping
from hostelry.processes.supervision import MAX_HANG_KILLS, LivenessPolicy
from hostelry.processes.supervisor import Command, ServiceSpec, Supervisor

IMPATIENT = LivenessPolicy(
    every_s=0.01, starting_every_s=0.01, timeout_s=0.01, max_misses=2, start_s=0.0, late_s=60.0
)
PROGRAM = "import time; time.sleep(600)"
NO_GROUP = 2**22 + 1  # above the largest process id of Linux


def test_a_service_that_hangs_again_and_again_is_left_and_watched(tmp_path: Path) -> None:
    async def scenario() -> None:
        messages: asyncio.Queue[str] = asyncio.Queue()
        answers = False

        async def is_alive(_: float) -> bool:
            return answers

        home = Home(tmp_path)
        for folder in (home.run, home.logs):
            folder.mkdir(parents=True)
        supervisor = Supervisor(home, messages.put_nowait)
        supervisor.now_ready()
        supervisor.start(
            ServiceSpec(
                name="control",
                command=lambda: Command(argv=[sys.executable, "-c", PROGRAM], env={}),
                port=0,
                liveness=IMPATIENT,
                is_alive=is_alive,
            )
        )
        for _ in range(MAX_HANG_KILLS):
            assert (await messages.get()).endswith("in a row were missed; killing it")
            assert "control was killed by SIGKILL" in await messages.get()
        left = await messages.get()
        pid = int(left.partition("`kill -9 ")[2].partition("`")[0])
        assert identify(pid) is not None, "it runs on"
        answers = True
        assert await messages.get() == "control answers again"
        await supervisor.stop("control")
        assert identify(pid) is None

    asyncio.run(asyncio.wait_for(scenario(), 60.0))


@cases(
    "stopping, expected",
    case("one that is killed at once: nothing", Stopping(first=signal.SIGKILL, grace_s=0.0), []),
    case(
        "one that was given time: that it took too long",
        Stopping(first=signal.SIGTERM, grace_s=0.01),
        ["s3door did not stop within 0.01 s; killing it"],
    ),
)
async def test_a_stop_reports_only_a_service_that_outlived_its_time(
    tmp_path: Path, stopping: Stopping, expected: list[str]
) -> None:
    messages: list[str] = []
    died = asyncio.get_running_loop().create_future()  # it has not ended yet
    supervisor = Supervisor(Home(tmp_path), messages.append)
    await supervisor._end(died, NO_GROUP, "s3door", stopping)
    assert messages == expected
