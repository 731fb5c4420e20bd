"""Assignment of the tensors in an adapter's file to modules. None may be left over.

# I in-features, O out-features, R rank, V vocabulary, H hidden
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum

import msgspec
import torch
from msgspec.structs import replace

from hostelry.engine.lora.config import AdapterConfig
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.layout import AdapterLayout, AdapterRanks, AdapterScales, ModuleRuns
from hostelry.engine.lora.selection import Selection
from hostelry.engine.lora.targets import TargetModule, TargetModules
from hostelry.engine.lora.weights_file import check_tensor


class Kind(Enum):
    """How a module's A and B are laid out."""

    LINEAR = "linear"
    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"


class ModuleTensors(msgspec.Struct, frozen=True, kw_only=True):
    """One targeted module's A and B as in the file. `number` counts linear modules."""

    target: TargetModule
    kind: Kind
    number: int
    scale: float
    named: tuple[tuple[str, torch.Tensor], tuple[str, torch.Tensor]]

    @property
    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Both as rows, in the order of the layout (see `PageImage.fill`)."""
        (_, a), (_, b) = self.named
        if self.kind is Kind.LINEAR:
            return a, b.T
        return (a.T, b.T) if self.kind is Kind.EMBEDDING else (b, a)

    def runs(self, layout: AdapterLayout) -> ModuleRuns:
        """The module's rows in the layout."""
        if self.kind is Kind.LINEAR:
            return layout.linears[self.number]
        wide = layout.embedding if self.kind is Kind.EMBEDDING else layout.lm_head
        assert wide is not None, "the layout has the ranks that the modules have"
        return wide.runs


class TensorTable:
    """The tensors of a file that no module has taken yet."""

    def __init__(self, file_name: str, tensors: Mapping[str, torch.Tensor]) -> None:
        self._file_name = file_name
        self._tensors = dict(tensors)

    def take(self, name: str) -> torch.Tensor | None:
        """The tensor of that name, once. None if it is absent or taken."""
        return self._tensors.pop(name, None)

    def take_checked(self, name: str, path: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor of a targeted module. Raises AdapterError if absent or of another shape."""
        tensor = self.take(name)
        if tensor is None:
            raise AdapterError(f"tensor {name} is missing; target_modules includes {path}")
        check_tensor(name, tensor, shape)
        return tensor

    def check_empty(self) -> None:
        """Raise AdapterError if a tensor is left: it would be ignored."""
        if self._tensors:
            raise AdapterError(
                f"{self._file_name} holds {min(self._tensors)}, which no targeted module uses"
            )


def drop_absent(
    selection: Selection, targets: TargetModules, names: Collection[str]
) -> tuple[Selection, Sequence[str]]:
    """The selection without modules that have neither A nor B in `names`, and their paths.

    Tied modules stay. If all are absent, all stay.
    """
    absent: list[str] = []

    def keep_rank(target: TargetModule, kind: Kind, rank: int) -> int:
        if not rank or any(name in names for name in _name_tensors(target.path, kind)):
            return rank
        absent.append(target.path)
        return 0

    ranks, scales = selection.ranks, selection.scales
    linears = tuple(
        keep_rank(target, Kind.LINEAR, rank)
        for target, rank in zip(targets.linears, ranks.linears, strict=True)
    )
    embedding, lm_head = ranks.embedding, ranks.lm_head
    if not selection.ties_vocabulary:
        embedding = keep_rank(targets.embedding, Kind.EMBEDDING, embedding)
        lm_head = keep_rank(targets.lm_head, Kind.LM_HEAD, lm_head)
    there = AdapterRanks(linears=linears, embedding=embedding, lm_head=lm_head)
    if not there.largest or not absent:
        return selection, ()
    scales = AdapterScales(
        linears=tuple(
            scale if rank else 0.0 for scale, rank in zip(scales.linears, linears, strict=True)
        ),
        embedding=scales.embedding if embedding else 0.0,
        lm_head=scales.lm_head if lm_head else 0.0,
    )
    return replace(selection, ranks=there, scales=scales), absent


def warn_about_absent(paths: Sequence[str], config: AdapterConfig) -> tuple[str, ...]:
    """The warning for targeted modules without tensors, which PEFT leaves as they are.

    Raises AdapterError if PEFT would start them with random numbers.
    """
    if not paths:
        return ()
    if not config.starts_without_effect:
        raise AdapterError(
            f"there are no tensors of {paths[0]}, which target_modules includes; init_lora_weights "
            "is not true, with which PEFT starts such a module with random numbers"
        )
    others = f" and {len(paths) - 1} more modules" if len(paths) > 1 else ""
    return (
        f"there are no tensors of {paths[0]}{others}, which target_modules includes; the base is "
        "unchanged there",
    )


def take_modules(
    table: TensorTable, selection: Selection, targets: TargetModules
) -> Sequence[ModuleTensors]:
    """The targeted modules: linear ones by number, then the embedding, then lm_head.

    Raises AdapterError if a tensor is missing, of another shape, or not of a float type.
    """
    ranks, scales = selection.ranks, selection.scales
    modules = [
        _take(table, target, Kind.LINEAR, number, rank, scale)
        for number, (target, rank, scale) in enumerate(
            zip(targets.linears, ranks.linears, scales.linears, strict=True)
        )
        if rank
    ]
    embedding = lm_head = None
    if ranks.embedding:
        embedding = _take(
            table, targets.embedding, Kind.EMBEDDING, -1, ranks.embedding, scales.embedding
        )
        modules.append(embedding)
    if ranks.lm_head:
        lm_head = _take(table, targets.lm_head, Kind.LM_HEAD, -1, ranks.lm_head, scales.lm_head)
        modules.append(lm_head)
    if selection.ties_vocabulary and embedding is not None and lm_head is not None:
        _check_tied(embedding, lm_head)
    return modules


def content_id(modules: Iterable[ModuleTensors]) -> str:
    """A hash of everything that decides the result: paths, ranks, scales and numbers.

    The same for the same tensors in a file of another format or order, or under another
    configuration that means the same.
    """
    digest = hashlib.sha256(b"adapter\n")
    for module in modules:
        for name, tensor in module.named:
            line = f"{name} {tuple(tensor.shape)} {tensor.dtype} {module.scale.hex()}\n"
            digest.update(line.encode())
            digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _take(
    table: TensorTable, target: TargetModule, kind: Kind, number: int, rank: int, scale: float
) -> ModuleTensors:
    """Take A and B of one module."""
    shapes = (rank, target.in_features), (target.out_features, rank)
    named = tuple(
        (name, table.take_checked(name, target.path, shape))
        for name, shape in zip(_name_tensors(target.path, kind), shapes, strict=True)
    )
    return ModuleTensors(
        target=target, kind=kind, number=number, scale=scale, named=(named[0], named[1])
    )


def _name_tensors(path: str, kind: Kind) -> tuple[str, str]:
    """A's and B's names in the file. The embedding's are parameters, not modules with a weight."""
    end = "embedding_{}" if kind is Kind.EMBEDDING else "{}.weight"
    start = f"base_model.model.{path}.lora_"
    return start + end.format("A"), start + end.format("B")


def _check_tied(embedding: ModuleTensors, lm_head: ModuleTensors) -> None:
    """Raise AdapterError if tied tensors differ: PEFT keeps one copy, so one would be lost."""
    (_, embedding_a), (_, embedding_b) = embedding.named
    (name_a, a), (name_b, b) = lm_head.named
    for name, tensor, other in ((name_a, a, embedding_b), (name_b, b, embedding_a)):
        if not torch.equal(tensor, other.T):
            raise AdapterError(
                f"tensor {name} differs from that of {embedding.target.path}, to which "
                "ensure_weight_tying ties it"
            )
