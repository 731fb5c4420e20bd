"""PEFT adapters for vLLM: checked as our own engine checks them, then written in a plainer form.

vLLM accepts more of PEFT's configuration than it reads. With this form it computes the same.

    an adapter's file                            what vLLM is given
    -------------------------------------------  ------------------------------------------------
    modules of different ranks (rank_pattern)    the largest rank for all, filled up with zeros
    alpha, alpha_pattern, rsLoRA                 alpha = r, and the scale multiplied into B, in fp32
    a field that changes the result otherwise    refused, by name
    embedding, lm_head                           refused
    a tensor that no module of the base has      refused
    a targeted module without tensors            a warning, as the base is unchanged there
    a copy of the base's own weights             left out if equal, else refused
    nan, infinity, or no effect at all           refused

# I in-features, O out-features, R rank
"""

import asyncio
import hashlib
import heapq
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from hostelry.base.json import decode
from hostelry.containers.lmi.engine.backend import (
    AdapterView,
    BackendStats,
    CachedAdapterView,
    CacheView,
)
from hostelry.engine.lora.config import AdapterConfig, BaseIdentity, check_base, load_config
from hostelry.engine.lora.errors import AdapterError, UnknownAdapterError
from hostelry.engine.lora.reader import check_saved
from hostelry.engine.lora.sources import (
    Fetcher,
    LocalSource,
    check_fetched,
    find_fetcher,
    parse_source,
)
from hostelry.engine.lora.tensors import warn_about_absent
from hostelry.engine.lora.weights_file import check_tensor, read_tensors

MAX_FILE_BYTES = 8 << 30
COPY = re.compile(r"base_model\.model\.(.+?)(?:\.base_layer)?\.weight")
TENSOR = re.compile(r"base_model\.model\.(?P<path>.+)\.lora_(?P<half>[AB])\.weight")
VOCABULARY = ("embed_tokens", "lm_head", "wte", "word_embeddings", "embed_out")
LM_HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
# Suffixes of a linear module's stored weight. The shape of a packed weight says nothing.
PLAIN, PACKED = "weight", ("qweight", "weight_packed", "weight_scale", "scales")

Shape = tuple[int, ...]


class PreparedAdapter(msgspec.Struct, frozen=True, kw_only=True):
    """A checked adapter, written to `folder` in vLLM's form."""

    folder: Path
    content_id: str
    rank: int
    num_bytes: int
    warnings: tuple[str, ...]


class AdapterPreparer(msgspec.Struct, frozen=True, kw_only=True):
    """Reads adapters for one base model. `prepare` may run in several threads at once.

    `linears` are the base's linear modules by path, with the shape (O, I) of those whose weight is
    stored plainly. `is_base_weight` says of a weight's name and values whether they are the base's.
    """

    linears: Mapping[str, Shape | None]
    is_base_weight: Callable[[str, torch.Tensor], bool]
    identity: BaseIdentity
    max_rank: int
    place: Path
    fetchers: Mapping[str, Fetcher]

    def prepare(self, src: str) -> PreparedAdapter:
        """The adapter at a path or URI. Raises AdapterError or OSError with the reason."""
        with fetch_files(src, self.fetchers) as folder:
            config = load_config(folder)
            warnings = check_base(config, self.identity, strict=False)
            name, tensors = read_tensors(folder, max_bytes=MAX_FILE_BYTES)
        halves = by_module(name, self._without_copies(tensors, config), config, self.linears)
        ranks = self._ranks(config, halves)
        absent = without_tensors(config, halves, self.linears)
        warnings = (*config.warnings, *warn_about_absent(absent, config), *warnings)
        check_values(config, halves)
        content = canonical(config, halves, max(ranks.values()))
        into = Path(tempfile.mkdtemp(prefix="adapter-", dir=self.place))
        try:
            write(into, content, max(ranks.values()), sorted(halves))
        except BaseException:
            shutil.rmtree(into, ignore_errors=True)
            raise
        return PreparedAdapter(
            folder=into,
            content_id=content_id(config, halves),
            rank=max(ranks.values()),
            num_bytes=sum(it.numel() * it.element_size() for it in content.values()),
            warnings=warnings,
        )

    def _without_copies(
        self, tensors: Mapping[str, torch.Tensor], config: AdapterConfig
    ) -> Mapping[str, torch.Tensor]:
        """The tensors without copies of the base's weights, which PEFT saves with some adapters."""
        names = {
            name: copy[1]
            for name in tensors
            if (copy := COPY.fullmatch(name)) and not TENSOR.fullmatch(name)
        }
        found = {
            it for it, path in names.items() if self.is_base_weight(f"{path}.weight", tensors[it])
        }
        check_saved(config, (names[it] for it in found))
        return {name: tensor for name, tensor in tensors.items() if name not in found}

    def _ranks(self, config: AdapterConfig, halves: "Halves") -> dict[str, int]:
        """Each module's rank, once its tensors have the shapes that it asks for."""
        ranks: dict[str, int] = {}
        for path, (a, b) in halves.items():
            rank = ranks[path] = config.get_rank(path)
            if rank > self.max_rank:
                raise AdapterError(f"r is {rank} at {path}; max_lora_rank is {self.max_rank}")
            outs, ins = self.linears[path] or (b.shape[0], a.shape[-1])
            check_tensor(tensor_name(path, "A"), a, (rank, ins))
            check_tensor(tensor_name(path, "B"), b, (outs, rank))
        return ranks


Halves = Mapping[str, tuple[torch.Tensor, torch.Tensor]]


@contextmanager
def fetch_files(src: str, fetchers: Mapping[str, Fetcher]) -> Iterator[Path]:
    """The folder with the adapter's files."""
    source = parse_source(src)
    if isinstance(source, LocalSource):
        yield source.folder
        return
    fetcher = find_fetcher(source, fetchers)
    with tempfile.TemporaryDirectory(prefix="fetched-") as name:
        fetcher.fetch(source.uri, Path(name))
        check_fetched(Path(name), max_bytes=MAX_FILE_BYTES)
        yield Path(name)


def by_module(
    file_name: str,
    tensors: Mapping[str, torch.Tensor],
    config: AdapterConfig,
    linears: Mapping[str, Shape | None],
) -> Halves:
    """A and B by module. Raises AdapterError for a tensor that would be ignored."""
    found: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in sorted(tensors.items()):
        match = TENSOR.fullmatch(name)
        path = match["path"] if match else name
        if any(part in VOCABULARY for part in path.split(".")):
            raise AdapterError(
                f"tensor {name} changes the vocabulary; with vLLM adapters may change linear "
                "modules of the layers only"
            )
        if match is None:
            raise AdapterError(f"{file_name} holds {name}, which is no A or B of a linear module")
        if path not in linears:
            raise AdapterError(f"tensor {name}: the base model has no linear module {path}")
        if not config.targets(path):
            raise AdapterError(f"{file_name} holds {name}, which no targeted module uses")
        found.setdefault(path, {})[match["half"]] = tensor
    for path, halves in found.items():
        for half in "AB":
            if half not in halves:
                raise AdapterError(f"tensor {tensor_name(path, half)} is missing")
    if not found:
        raise AdapterError(f"{file_name} holds no tensor")
    return {path: (halves["A"], halves["B"]) for path, halves in found.items()}


def without_tensors(
    config: AdapterConfig, halves: Halves, linears: Mapping[str, Shape | None]
) -> list[str]:
    """The targeted modules of the base without tensors.

    Only the model's code knows the modules of "all-linear". Then these are the modules without
    tensors that share their last name with a module that has tensors.
    """
    names = {path.rsplit(".", 1)[-1] for path in halves}
    found = []
    for path in linears:
        if path in halves or not config.targets(path):
            continue
        last = path.rsplit(".", 1)[-1]
        if not config.targets_all_linear or last in names:
            found.append(path)
    return found


def check_values(config: AdapterConfig, halves: Halves) -> None:
    """Raise AdapterError for nan or infinity, and for an adapter without effect."""
    for path, pair in halves.items():
        for half, tensor in zip("AB", pair, strict=True):
            if not torch.isfinite(tensor).all():
                raise AdapterError(f"tensor {tensor_name(path, half)} holds nan or inf")
    if not any(config.get_scale(path) and a.any() and b.any() for path, (a, b) in halves.items()):
        raise AdapterError("the adapter has no effect: A or B of every module is all zeros")


def canonical(config: AdapterConfig, halves: Halves, rank: int) -> dict[str, torch.Tensor]:
    """Tensors of one rank and scale 1 that compute the same, in fp32."""
    content: dict[str, torch.Tensor] = {}
    for path, (a_RI, b_OR) in halves.items():
        own = a_RI.shape[0]
        a, b = torch.zeros(rank, a_RI.shape[1]), torch.zeros(b_OR.shape[0], rank)
        a[:own] = a_RI
        b[:, :own] = b_OR.float() * config.get_scale(path)
        if not (torch.isfinite(a).all() and torch.isfinite(b).all()):
            raise AdapterError(f"{path}: the scaled weights exceed fp32")
        content[tensor_name(path, "A")], content[tensor_name(path, "B")] = a, b
    return content


def write(folder: Path, content: dict[str, torch.Tensor], rank: int, paths: list[str]) -> None:
    """Write PEFT's two files."""
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": rank,
        "bias": "none",
        "target_modules": sorted({path.rsplit(".", 1)[-1] for path in paths}),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(content, folder / "adapter_model.safetensors")


def content_id(config: AdapterConfig, halves: Halves) -> str:
    """A hash of what decides the result: paths, scales and numbers."""
    digest = hashlib.sha256(b"adapter for vLLM\n")
    for path, pair in sorted(halves.items()):
        for tensor in pair:
            line = f"{path} {tuple(tensor.shape)} {tensor.dtype} {config.get_scale(path).hex()}\n"
            digest.update(line.encode())
            digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def tensor_name(path: str, half: str) -> str:
    """The tensor's name in an adapter's file."""
    return f"base_model.model.{path}.lora_{half}.weight"


def base_linears(folder: Path) -> dict[str, Shape | None]:
    """The linear modules of the base model in `folder`, with (O, I) if it is stored plainly.

    Every module with a matrix as its weight counts. One that is not linear is found when vLLM loads
    an adapter for it.
    """
    found: dict[str, Shape | None] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as reader:
            names = list(reader.keys())
            packed = {it.rpartition(".")[0] for it in names if it.rpartition(".")[2] in PACKED}
            found.update(dict.fromkeys(packed, None))
            for name in names:
                path, _, last = name.rpartition(".")
                shape = tuple(reader.get_slice(name).get_shape()) if last == PLAIN else ()
                if len(shape) == 2 and path not in packed:
                    found[path] = (shape[0], shape[1])
    return found


def read_own_config(folder: Path) -> dict[str, Any]:
    """The model's config.json. Raises ValueError if vLLM would load another model instead."""
    config = decode((folder / "config.json").read_bytes(), dict[str, Any])
    if config.get("speculators_config") is not None:
        raise ValueError(
            f"{folder.name}/config.json has speculators_config, which names another model. Give "
            "that model itself, and the speculator's folder in option.speculative_config"
        )
    return config


def base_files(folder: Path) -> dict[str, Path]:
    """The file of each weight of the base model in `folder`."""
    found: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as reader:
            found.update(dict.fromkeys(reader.keys(), file))
    return found


def is_base_weight(files: Mapping[str, Path], name: str, copy: torch.Tensor) -> bool:
    """True if the base's weight `name`, which is in one of `files`, has the values of `copy`.

    A base that stores no lm_head.weight has the embedding there.
    """
    if name == LM_HEAD and name not in files:
        name = EMBEDDING
    if name not in files:
        return False
    with safe_open(files[name], framework="pt") as reader:
        return _is_equal(reader.get_slice(name), copy)


def _is_equal(base: Any, copy: torch.Tensor) -> bool:
    """True if both have the same numbers, whatever their types. Compares a part at a time."""
    if tuple(base.get_shape()) != tuple(copy.shape) or not copy.is_floating_point():
        return False
    return all(
        torch.equal(base[start : start + 4096].double(), copy[start : start + 4096].double())
        for start in range(0, len(copy), 4096)
    )


class VllmAdapter(msgspec.Struct, eq=False, kw_only=True):
    """One version of an adapter."""

    name: str
    number: int
    prepared: PreparedAdapter
    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    num_in_flight: int = 0
    is_replaced: bool = False

    @property
    def content_id(self) -> str:
        """The hash of its content."""
        return self.prepared.content_id

    @property
    def key(self) -> str:
        """Its name in vLLM, of this version alone."""
        return f"{self.name}@{self.number}-{self.content_id[:16]}"

    @property
    def folder(self) -> Path:
        """Where vLLM reads it, again and again."""
        return self.prepared.folder

    def view(self) -> AdapterView:
        """Its state for the server. vLLM does not say in which tier it holds an adapter."""
        return AdapterView(
            version=self.content_id,
            tier="disk",
            rank=self.prepared.rank,
            num_bytes=self.prepared.num_bytes,
            num_pages=0,
            requests=self.requests,
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self.generated_tokens,
            in_flight=self.num_in_flight,
            warnings=self.prepared.warnings,
        )


class AdapterTable:
    """Adapters by name. `drop` is called with a version that no request uses any more.

    vLLM knows an adapter by a number and a key, which each version has to itself, so that vLLM's
    caches never mix two versions.
    """

    def __init__(self, drop: Callable[[VllmAdapter], None]) -> None:
        self._drop = drop
        self._by_name: dict[str, VllmAdapter] = {}
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def new(self, name: str, prepared: PreparedAdapter) -> VllmAdapter:
        """A version with a new number, not registered yet."""
        self._last_number += 1
        return VllmAdapter(name=name, number=self._last_number, prepared=prepared)

    def register(self, adapter: VllmAdapter) -> None:
        """Make it the version of its name. The former version goes once its requests ended."""
        old = self._by_name.get(adapter.name)
        self._by_name[adapter.name] = adapter
        if old is not None:
            self._replace(old)

    def unregister(self, name: str) -> None:
        """Forget the name. Raises UnknownAdapterError."""
        self._replace(self.of(name))
        del self._by_name[name]

    def of(self, name: str) -> VllmAdapter:
        """The version of the name. Raises UnknownAdapterError."""
        adapter = self._by_name.get(name)
        if adapter is None:
            raise UnknownAdapterError(f"adapter {name!r} is not loaded")
        return adapter

    def cache(self, limit: int, stats: BackendStats) -> CacheView:
        """At most `limit` adapters, the busiest first, and sums over all."""
        every = self._by_name.values()
        shown = heapq.nlargest(limit, every, key=lambda it: it.requests)
        return CacheView(
            adapters=tuple(CachedAdapterView(name=it.name, view=it.view()) for it in shown),
            num_adapters=len(every),
            requests=sum(it.requests for it in every),
            prompt_tokens=sum(it.prompt_tokens for it in every),
            generated_tokens=sum(it.generated_tokens for it in every),
            stats=stats,
        )

    def acquire(self, name: str | None, num_prompt: int) -> VllmAdapter | None:
        """The version for a new request, which keeps it. None is the base model."""
        if name is None:
            return None
        adapter = self.of(name)
        adapter.num_in_flight += 1
        adapter.requests += 1
        adapter.prompt_tokens += num_prompt
        return adapter

    def release(self, adapter: VllmAdapter | None) -> None:
        """The request ended."""
        if adapter is None:
            return
        adapter.num_in_flight -= 1
        if adapter.is_replaced and not adapter.num_in_flight:
            self._drop(adapter)

    def _replace(self, adapter: VllmAdapter) -> None:
        adapter.is_replaced = True
        if not adapter.num_in_flight:
            self._drop(adapter)


async def delete_files(prepared: PreparedAdapter) -> None:
    """Delete the files written for it."""
    await asyncio.to_thread(shutil.rmtree, prepared.folder, ignore_errors=True)
