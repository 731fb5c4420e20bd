"""Memory of loaded models in each contestant, and the memory that an unload returns."""

import contextlib
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.integration.platform import clean_environment

from benchmarks.many_models_bench import Bench, Row
from benchmarks.many_models_platform import running_server
from benchmarks.model_trace import MB
from benchmarks.peers import process_tree
from benchmarks.peers.many_models import RayModels, TritonModels
from benchmarks.peers.model_shelf import BODY, JSON

MOST_PROCESSES = 10
ALONE = """
import sys, joblib, numpy
import sagemaker_inference.transformer
model = joblib.load(sys.argv[1])
model.predict(numpy.array([[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]]))
print("ready", flush=True)
sys.stdin.read()
"""


def pss(pids: Sequence[int]) -> float:
    """The megabytes of process trees. Each shared page is divided by the number of its mappings."""
    return sum(process_tree.memory(pid).pss_bytes for pid in pids) / MB


def memory_row(what: str, loaded: int, total: float, more: float | None = None) -> Row:
    """A line of the table of memory."""
    return {
        "what": what,
        "models": loaded,
        "MB": total,
        "MB a model": total / loaded,
        "MB a further one": "-" if more is None else more,
        "given back, %": "-",
    }


def memory_of_peer(bench: Bench, peer: RayModels | TritonModels) -> Row:
    """Memory of the mixed models, in addition to small models in Ray, or to none in Triton."""

    def call_all(targets: Sequence[str]) -> float:
        for target in targets:
            bench.checked(peer, target)
        return pss([peer.pid])

    mixed = bench.mixed
    if isinstance(peer, TritonModels):
        mixed = mixed[:MOST_PROCESSES]
        peer.unload_all()
        before = pss([peer.pid])
        loaded = call_all(mixed)
        peer.unload_all()
        after = pss([peer.pid])
    else:
        before = call_all(bench.small)
        loaded = call_all(mixed)
        after = call_all(bench.small)
    count = len(mixed)
    row = memory_row(peer.name, count, loaded, (loaded - before) / count)
    return row | {"given back, %": 100 * (loaded - after) / (loaded - before)}


def memory_of_server(bench: Bench) -> Row:
    """Memory of the mixed models in a copy's program alone, loaded and unloaded by its contract."""
    folder = bench.scratch / "unpacked"
    folder.mkdir()
    with running_server(folder, bench.python) as server, server.client() as http:
        pid = server.process.pid

        def loaded(targets: Sequence[str]) -> float:
            for target in targets:
                unpack_archive(bench.models / target, folder / target)
                order = {"model_name": target, "url": str(folder / target)}
                http.post("/models", json=order).raise_for_status()
                http.post(
                    f"/models/{target}/invoke", content=BODY, headers={"Content-Type": JSON}
                ).raise_for_status()
            return pss([pid])

        before = loaded(bench.small[:1])
        full = loaded(bench.mixed)
        for target in bench.mixed:
            http.delete(f"/models/{target}").raise_for_status()
        after = pss([pid])
    count = len(bench.mixed)
    row = memory_row("hostelry", count, full, (full - before) / count)
    return row | {"given back, %": 100 * (full - after) / (full - before)}


def unpack_archive(archive: Path, folder: Path) -> None:
    """Unpack an archive into `folder`."""
    with tarfile.open(archive) as members:
        members.extractall(folder, filter="data")


def memory_of_processes(bench: Bench) -> Row:
    """Memory of the mixed models with a Python process for each, which has answered once."""
    folder = bench.scratch / "unpacked"
    with contextlib.ExitStack() as stack:
        pids = []
        for target in bench.mixed[:MOST_PROCESSES]:
            process = stack.enter_context(
                subprocess.Popen(
                    [bench.python, "-c", ALONE, folder / target / "model.joblib"],
                    env=clean_environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                )
            )
            assert process.stdout is not None  # Popen was called with a pipe
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError(f"a process of its own for {target} does not answer")
            pids.append(process.pid)
        total = pss(pids)
    return memory_row("a process each", len(pids), total, total / len(pids))
