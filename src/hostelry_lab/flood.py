"""Flood of invocations from a separate process, so that it does not slow the measuring callers."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from hostelry.home.aws_client import aws_client
from hostelry.home.home import Credentials, UpConfig
from hostelry_lab.load import Load, LoadTarget

START_S, END_S = 60.0, 30.0


class Flood:
    """Outcomes of the flood's calls, filled when it has ended."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()


@contextmanager
def flooding(
    config: UpConfig, credentials: Credentials, load_target: LoadTarget, num_callers: int
) -> Iterator[Flood]:
    """Let `num_callers` invoke the target without pause while the block runs."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_run, args=(theirs, config, credentials, load_target, num_callers)
    )
    process.start()
    flood = Flood()
    try:
        if ours.poll(START_S):
            ours.recv()
        yield flood
        ours.send("enough")
        if ours.poll(END_S):
            flood.outcomes.update(ours.recv())
    finally:
        process.terminate()
        process.join()


def _run(
    line: Connection,
    config: UpConfig,
    credentials: Credentials,
    load_target: LoadTarget,
    num_callers: int,
) -> None:
    runtime = aws_client("sagemaker-runtime", config, credentials)
    load = Load(runtime, load_target, num_callers)
    with load.flowing():
        line.send("flowing")
        line.recv()
    line.send(Counter(it.outcome for it in load.calls))
