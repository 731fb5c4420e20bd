"""A rank's shard of a model, and the program of the ranks other than 0.

python -m hostelry.engine.runner.follower JOB    with a FollowerJob as JSON
"""

import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from hostelry.base.json import decode
from hostelry.engine.kernels.batch import AdapterIndex
from hostelry.engine.kernels.decoder import Decoder
from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.kernels.weights import DecoderWeights
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import Collective, shard_weights
from hostelry.engine.lora.config import BaseIdentity
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import TargetModules, decoder_targets
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.models.spec import TORCH_DTYPES
from hostelry.engine.runner.parallel import (
    RankConnections,
    SharePlacer,
    find_failed_ranks,
    follow,
    join,
    leave,
)


class FollowerJob(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a rank.

    All but `rank` and `device` are equal on all ranks. `num_pages` counts the pages of every rank's
    pool. `init_method` is explained at `join`.
    """

    folder: str
    dtype: str
    max_len: int
    page_tokens: int
    num_pages: int
    init_method: str
    rank: int
    world_size: int
    device: str = "cpu"
    adapters: AdapterRules = AdapterRules()
    base_names: tuple[str, ...] = ()
    step_timeout_s: float = 60.0
    num_threads: int = 1
    kernels: str = "torch"


class RankDeps(msgspec.Struct, frozen=True):
    """One rank's decoder and pool, and the reader and placer of its part of adapters."""

    decoder: Decoder
    pool: PoolTensor
    targets: TargetModules
    reader: AdapterReader
    place: SharePlacer


def load_part(job: FollowerJob, collective: Collective) -> RankDeps:
    """Load this rank's part of the model in `job.folder`.

    Raises UnsupportedModelError for the folder, and ValueError if the ranks cannot share the model.
    """
    shard, device = collective.shard, torch.device(job.device)
    folder, dtype = Path(job.folder), TORCH_DTYPES[job.dtype]
    spec = load_spec(folder)
    whole = load_decoder(folder, spec, max_len=job.max_len, dtype=dtype, device=torch.device("cpu"))
    weights = shard_weights(whole, shard, device)
    layout = PoolLayout(
        num_layers=spec.num_layers,
        num_kv_heads=weights.num_kv_heads,
        head_dim=spec.head_dim,
        page_tokens=job.page_tokens,
        dtype=dtype,
    )
    pool = PoolTensor(layout, job.num_pages, device)
    targets = decoder_targets(spec)

    def vocabulary(path: str) -> torch.Tensor:
        """Read from the folder again: a rank keeps no more than its part."""
        again = load_decoder(folder, spec, max_len=1, dtype=dtype, device=torch.device("cpu"))
        return again.lm_head_VH if path == targets.lm_head.path else again.embedding_VH

    reader = AdapterReader(
        BaseModel(
            targets=targets,
            identity=BaseIdentity(names=job.base_names),
            vocabulary=vocabulary,
        ),
        job.adapters,
        PageForm(page_elements=layout.page_elements, dtype=dtype),
    )
    decoder = _build_decoder(weights, job.kernels, collective)
    return RankDeps(decoder, pool, targets, reader, SharePlacer(reader, targets, shard, pool))


def _build_decoder(weights: DecoderWeights, kernels: str, collective: Collective) -> Decoder:
    """A rank's decoder. Without graphs: NCCL's sums in a graph were not run on several devices."""
    if kernels != "triton":
        return TorchDecoder(weights, collective)
    # Importing triton takes seconds. Only a process that computes with it waits for that.
    from hostelry.engine.layers.cuda_decoder import CudaDecoder

    return CudaDecoder(weights, collective)


def start_followers(
    job: FollowerJob, devices: Sequence[str] | None = None
) -> list[subprocess.Popen[bytes]]:
    """Start a process for each rank but 0.

    Rank r runs on `devices[r]`. Each writes a line to its stdout when it is about to join. They end
    with `LeadingDecoder.stop`, or when their stdin ends, as it does with this process. The caller
    waits for them.
    """
    processes = []
    for rank in range(1, job.world_size):
        device = devices[rank] if devices else job.device
        theirs = msgspec.structs.replace(job, rank=rank, device=device)
        command = [sys.executable, "-m", __name__, msgspec.json.encode(theirs).decode()]
        processes.append(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # signals from a terminal are rank 0's to act on
            )
        )
    return processes


def take_part(job: FollowerJob) -> None:
    """Join rank 0, load this rank's part, and follow until rank 0 sends a stop."""
    device = torch.device(job.device)
    ranks = join(
        job.init_method, job.rank, job.world_size, device=device, step_timeout_s=job.step_timeout_s
    )
    try:
        part = load_part(job, ranks.collective)
    except Exception as error:
        ranks.channel.exchange_reasons(f"{type(error).__name__}: {error}")
        raise
    if find_failed_ranks(ranks.channel):
        sys.exit(1)
    indexes: dict[int, AdapterIndex] = {}
    adapters = threading.Thread(
        target=_end_if_failed, args=(lambda: _follow_adapters(part, ranks, indexes),), daemon=True
    )
    adapters.start()
    follow(part.decoder, part.pool, ranks.channel, part.place, indexes)
    adapters.join()
    leave()


def main(arguments: Sequence[str]) -> None:
    """Follow rank 0 until it sends a stop, or is gone."""
    job = decode(arguments[0], FollowerJob)
    threading.Thread(target=_end_with_rank_0, daemon=True).start()
    torch.set_num_threads(job.num_threads)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    _end_if_failed(lambda: take_part(job))


def _follow_adapters(
    part: RankDeps, ranks: RankConnections, indexes: dict[int, AdapterIndex]
) -> None:
    follow(part.decoder, part.pool, ranks.placements, part.place, indexes)


def _end_with_rank_0() -> None:
    """End this process once rank 0, which holds the other end of stdin, is gone."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _end_if_failed(work: Callable[[], None]) -> None:
    """End the process if `work` fails, including threads that wait for other ranks."""
    try:
        work()
    except Exception:  # noqa: BLE001 - an outermost edge: rank 0 sees the connection end
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
