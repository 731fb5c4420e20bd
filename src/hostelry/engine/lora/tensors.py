"""Assignment of the tensors in an adapter's file to modules; none may be left over.

# I in-features, O out-features, R rank, V vocabulary, H hidden
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.layout import AdapterLayout, ModuleRuns
from hostelry.engine.lora.selection import Selection
from hostelry.engine.lora.targets import TargetModule, TargetModules
from hostelry.engine.lora.weights_file import check_tensor


class Kind(Enum):
    """How a module's A and B are laid out."""

    LINEAR = "linear"
    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTensors:
    """One targeted module's A and B as the file has them; `number` counts linear modules."""

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
        """The tensor of that name, once; None where there is none."""
        return self._tensors.pop(name, None)

    def take_checked(self, name: str, path: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor of a targeted module. Raises AdapterError if absent or of another shape."""
        tensor = self.take(name)
        if tensor is None:
            raise AdapterError(f"tensor {name} is missing; target_modules includes {path}")
        check_tensor(name, tensor, shape)
        return tensor

    def check_empty(self) -> None:
        """Raise AdapterError where a tensor is left: it would be ignored."""
        if self._tensors:
            raise AdapterError(
                f"{self._file_name} holds {min(self._tensors)}, which no targeted module uses"
            )


def take_modules(
    table: TensorTable, selection: Selection, targets: TargetModules
) -> Sequence[ModuleTensors]:
    """The targeted modules, linear ones by number, then the embedding, then lm_head.

    Raises AdapterError where a tensor is missing, of another shape, or of no float type.
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
    is_embedding = kind is Kind.EMBEDDING  # whose halves are parameters, not modules with a weight
    first, second = (
        ("lora_embedding_A", "lora_embedding_B")
        if is_embedding
        else ("lora_A.weight", "lora_B.weight")
    )
    prefix = f"base_model.model.{target.path}"
    named = tuple(
        (f"{prefix}.{half}", table.take_checked(f"{prefix}.{half}", target.path, shape))
        for half, shape in (
            (first, (rank, target.in_features)),
            (second, (target.out_features, rank)),
        )
    )
    return ModuleTensors(
        target=target, kind=kind, number=number, scale=scale, named=(named[0], named[1])
    )


def _check_tied(embedding: ModuleTensors, lm_head: ModuleTensors) -> None:
    """Raise AdapterError where tied tensors differ: PEFT keeps one copy, so one would be lost."""
    (_, embedding_a), (_, embedding_b) = embedding.named
    (name_a, a), (name_b, b) = lm_head.named
    for name, tensor, other in ((name_a, a, embedding_b), (name_b, b, embedding_a)):
        if not torch.equal(tensor, other.T):
            raise AdapterError(
                f"tensor {name} differs from that of {embedding.target.path}, to which "
                "ensure_weight_tying ties it"
            )
