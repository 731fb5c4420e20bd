"""A rank's part of a model, and the program that a rank other than 0 runs.

python -m hostelry.engine.runner.follower JOB    with a FollowerJob as JSON
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch

from hostelry.engine.kernels.pool import PoolLayout, PoolTensor
from hostelry.engine.layers.collective import Collective
from hostelry.engine.layers.decoder import TorchDecoder
from hostelry.engine.layers.parallel import shard_weights
from hostelry.engine.lora.reader import AdapterReader, AdapterRules, BaseModel, PageForm
from hostelry.engine.lora.targets import Targets, decoder_targets
from hostelry.engine.models.registry import load_decoder, load_spec
from hostelry.engine.runner.parallel import SharePlacer, follow, join, leave

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class FollowerJob(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank must know; all but `rank` and `device` are the same on all of them.

    `num_pages`: pages of every rank's pool. `init_method` as `join` has it.
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
    max_lora_rank: int = 64
    allow_zero_effect: bool = False
    step_timeout_s: float = 60.0
    num_threads: int = 1


@dataclass(frozen=True, slots=True)
class RankPart:
    """One rank's decoder and pool, and what puts its part of adapters there."""

    decoder: TorchDecoder
    pool: PoolTensor
    targets: Targets
    reader: AdapterReader
    place: SharePlacer


def load_part(job: FollowerJob, collective: Collective) -> RankPart:
    """This rank's part of the model in `job.folder`.

    Raises ModelError for the folder, and ValueError where the ranks cannot share the model.
    """
    shard, device = collective.shard, torch.device(job.device)
    folder, dtype = Path(job.folder), _DTYPES[job.dtype]
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
        """Read anew: a rank keeps no more than its part."""
        again = load_decoder(folder, spec, max_len=1, dtype=dtype, device=torch.device("cpu"))
        return again.lm_head_VH if path == targets.lm_head.path else again.embedding_VH

    reader = AdapterReader(
        BaseModel(targets=targets, vocabulary=vocabulary),
        AdapterRules(max_rank=job.max_lora_rank, allow_zero_effect=job.allow_zero_effect),
        PageForm(page_elements=layout.page_elements, dtype=dtype),
    )
    decoder = TorchDecoder(weights, collective)
    return RankPart(decoder, pool, targets, reader, SharePlacer(reader, targets, shard, pool))


def start_followers(
    job: FollowerJob, devices: Sequence[str] | None = None
) -> list[subprocess.Popen[bytes]]:
    """A process for each rank but 0, whose job `job` is; rank r on `devices[r]`.

    They end with `LeadingDecoder.stop`, or by themselves when rank 0 dies; the caller waits.
    """
    processes = []
    for rank in range(1, job.world_size):
        device = devices[rank] if devices else job.device
        theirs = msgspec.structs.replace(job, rank=rank, device=device)
        command = [sys.executable, "-m", __name__, msgspec.json.encode(theirs).decode()]
        processes.append(subprocess.Popen(command))
    return processes


def main(arguments: Sequence[str]) -> None:
    """Follow rank 0 until it says stop."""
    job = msgspec.json.decode(arguments[0], type=FollowerJob)
    torch.set_num_threads(job.num_threads)
    device = torch.device(job.device)
    ranks = join(
        job.init_method, job.rank, job.world_size, device=device, step_timeout_s=job.step_timeout_s
    )
    part = load_part(job, ranks.collective)
    follow(part.decoder, part.pool, ranks.channel, part.place)
    leave()


if __name__ == "__main__":
    main(sys.argv[1:])
