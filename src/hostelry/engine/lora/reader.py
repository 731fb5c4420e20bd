"""Conversion of a PEFT folder to an adapter in page form, exact or refused."""

import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import numpy
import torch

from hostelry.engine.lora.config import AdapterConfig, BaseIdentity, check_base, load_config
from hostelry.engine.lora.content_ids import ContentIds, mark_files
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.image import AdapterSummary, HostAdapter, PageImage
from hostelry.engine.lora.image_file import load_image, save_image
from hostelry.engine.lora.layout import AdapterLayout, AdapterRanks, plan_layout
from hostelry.engine.lora.selection import Selection, select
from hostelry.engine.lora.targets import TargetModules
from hostelry.engine.lora.tensors import (
    ModuleTensors,
    TensorTable,
    content_id,
    drop_absent,
    take_modules,
    warn_about_absent,
)
from hostelry.engine.lora.weights_file import read_tensors

_NO_IDENTITY = BaseIdentity()
_HEADER_BYTES = 16 << 20  # room for names, and for what a pickle adds
_WIDEST_BYTES = 8  # of a number in the file
_IMAGE = "image"


class BaseModel(msgspec.Struct, frozen=True, kw_only=True):
    """The base model that adapters are checked against.

    `vocabulary` gives the base's weights (V, H) of the embedding or of lm_head by path. PEFT saves
    copies of these weights with adapters that target them. A copy is accepted if it equals the
    base's weight. Without `has_lm_head` the base is pooled, and its adapters may name their modules
    without "model.".
    """

    targets: TargetModules
    identity: BaseIdentity = _NO_IDENTITY
    vocabulary: Callable[[str], torch.Tensor] | None = None
    has_lm_head: bool = True


class AdapterRules(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of acceptance. `strict_base`: only adapters that name this very base."""

    max_rank: int = 64
    allow_zero_effect: bool = False
    strict_base: bool = False


class PageForm(msgspec.Struct, frozen=True, kw_only=True):
    """The form that adapters are read into. `is_pinned`: a GPU copies from host memory."""

    page_elements: int
    dtype: torch.dtype
    is_pinned: bool = False


class AdapterReader:
    """Reads adapters of one base model. `read` may run in several threads at once."""

    def __init__(self, base: BaseModel, rules: AdapterRules, form: PageForm) -> None:
        self._base = base
        self._rules = rules
        self._form = form
        self._layouts: dict[AdapterRanks, AdapterLayout] = {}
        self._content_ids = ContentIds()
        self._lock = threading.Lock()
        self._max_file_bytes = _compute_largest_file(base.targets, rules.max_rank)

    @property
    def max_folder_bytes(self) -> int:
        """The most bytes that the files of an acceptable adapter can have, and a margin."""
        return 2 * self._max_file_bytes

    def read(self, folder: Path) -> HostAdapter:
        """The adapter in `folder`. Raises AdapterError naming field or tensor and value."""
        marks = mark_files(folder)
        config = load_config(folder)
        warnings = check_base(config, self._base.identity, strict=self._rules.strict_base)
        selection = select(config, self._base.targets, max_rank=self._rules.max_rank)
        file_name, tensors = read_tensors(folder, max_bytes=self._max_file_bytes)
        if not self._base.has_lm_head:
            tensors = _rename_pooled(tensors, selection)
        selection, absent = drop_absent(selection, self._base.targets, tensors)
        warnings = (*config.warnings, *warn_about_absent(absent, config), *warnings)
        table = TensorTable(file_name, tensors)
        modules = take_modules(table, selection, self._base.targets)
        check_saved(config, self._take_base_copies(table))
        table.check_empty()
        image = self._new_image(selection.ranks)
        layout = image.layout
        for module in modules:
            image.fill(module.runs(layout), *module.halves)
        _check_finite(image, modules)
        if not self._rules.allow_zero_effect:
            _check_effect(image, modules)
        identity = self._content_ids.get(folder, marks, lambda: content_id(modules))
        return HostAdapter(
            summary=_summarize(selection, modules, image, identity),
            layout=layout,
            scales=selection.scales,
            image=image,
            warnings=(*warnings, *_warn_about_rounding(modules, self._form.dtype)),
        )

    @property
    def form_name(self) -> str:
        """The name of the form that adapters are read into. Images of another form are unusable."""
        return f"{_name_dtype(self._form.dtype)}-{self._form.page_elements}"

    def save(self, adapter: HostAdapter, folder: Path) -> int:
        """Write the adapter in page form into `folder`.

        Returns the bytes written. Raises OSError.
        """
        return save_image(adapter, folder / _IMAGE)

    def restore(self, folder: Path, content_id: str) -> HostAdapter:
        """The adapter that `save` wrote. Raises AdapterError if it is damaged, and OSError."""
        return load_image(folder / _IMAGE, content_id, self._new_image)

    def _new_image(self, ranks: AdapterRanks) -> PageImage:
        return PageImage(self._get_layout(ranks), self._form.dtype, is_pinned=self._form.is_pinned)

    def _get_layout(self, ranks: AdapterRanks) -> AdapterLayout:
        """The layout shared by all adapters of these ranks."""
        layout = self._layouts.get(ranks)
        if layout is None:
            layout = plan_layout(self._base.targets, ranks, self._form.page_elements)
            with self._lock:
                if len(self._layouts) >= 256:
                    self._layouts.clear()
                layout = self._layouts.setdefault(ranks, layout)
        return layout

    def _take_base_copies(self, table: TensorTable) -> set[str]:
        """Drop copies of the base's own weights, and return the modules that have one.

        Raises AdapterError for any other values.
        """
        targets = self._base.targets
        found = set()
        for target in (targets.embedding, targets.lm_head):
            for suffix in ("base_layer.weight", "weight"):
                name = f"base_model.model.{target.path}.{suffix}"
                copy = table.take(name)
                if copy is None:
                    continue
                if not self._is_base(target.path, copy):
                    raise AdapterError(
                        f"tensor {name} is not the base model's; an adapter that replaces weights "
                        "of the base is not supported"
                    )
                found.add(target.path)
        return found

    def _is_base(self, path: str, copy: torch.Tensor) -> bool:
        """True if `copy` is the base's weight at `path`, in the computing dtype."""
        if self._base.vocabulary is None:
            return False
        base = self._base.vocabulary(path)
        if copy.shape != base.shape or not copy.is_floating_point() or copy.is_meta:
            return False
        dtype = self._form.dtype
        return all(  # a part at a time: the whole may be large
            torch.equal(base[start : start + 4096].to(dtype), copy[start : start + 4096].to(dtype))
            for start in range(0, len(base), 4096)
        )


def check_saved(config: AdapterConfig, copies: Iterable[str]) -> None:
    """Raise AdapterError for a module of modules_to_save without a copy of the base's weights.

    `copies` are the paths of modules whose weights lie with the adapter and equal the base's.
    """
    ends = [f".{path}" for path in copies]
    for name in sorted(config.modules_to_save):
        if not any(end.endswith(f".{name}") for end in ends):
            raise AdapterError(
                f"modules_to_save names {name!r}; only modules whose weights lie with the adapter "
                "and equal the base model's are supported, and of these embed_tokens and lm_head"
            )


def _rename_pooled(
    tensors: dict[str, torch.Tensor], selection: Selection
) -> dict[str, torch.Tensor]:
    """The tensors as named in the generating model. Raises AdapterError for one of lm_head."""
    if selection.ranks.lm_head:
        raise AdapterError("target_modules names lm_head, which a model that is pooled has not")
    start, whole = "base_model.model.", ("model.", "lm_head.")
    renamed: dict[str, torch.Tensor] = {}
    for name, tensor in tensors.items():
        inner = name.removeprefix(start)
        if inner != name and not inner.startswith(whole):
            name = f"{start}model.{inner}"
        if name in renamed:
            raise AdapterError(f"tensor {name} is stored twice, with and without model.")
        renamed[name] = tensor
    return renamed


def _compute_largest_file(targets: TargetModules, max_rank: int) -> int:
    """Bytes that the weights of the largest acceptable adapter can take."""
    wide = (targets.embedding, targets.lm_head)
    numbers = sum(max_rank * (it.in_features + it.out_features) for it in (*targets.linears, *wide))
    copies = sum(it.in_features * it.out_features for it in wide)
    return (numbers + copies) * _WIDEST_BYTES + _HEADER_BYTES


def _summarize(
    selection: Selection, modules: Sequence[ModuleTensors], image: PageImage, identity: str
) -> AdapterSummary:
    names = {module.target.path.rsplit(".", 1)[-1] for module in modules}
    return AdapterSummary(
        content_id=identity,
        rank=selection.ranks.largest,
        target_modules=tuple(sorted(names)),
        num_bytes=image.num_bytes,
        num_pages=image.layout.num_pages,
    )


def _check_finite(image: PageImage, modules: Sequence[ModuleTensors]) -> None:
    """Raise AdapterError if any number is nan or infinite, in the file or once rounded."""
    if image.is_finite:
        return
    for module in modules:
        for name, tensor in module.named:
            if not torch.isfinite(tensor).all():
                raise AdapterError(f"tensor {name} holds nan or inf")
            if not torch.isfinite(tensor.to(image.elements.dtype)).all():
                largest = float(tensor.abs().max())
                raise AdapterError(
                    f"tensor {name} holds {largest:.3g}, too large for {image.elements.dtype}, "
                    "which this model computes in"
                )


def _check_effect(image: PageImage, modules: Sequence[ModuleTensors]) -> None:
    """Raise AdapterError for an adapter without effect: it was not trained, or not saved."""
    for module in modules:
        runs = module.runs(image.layout)
        if (
            numpy.float32(module.scale) != 0
            and not image.is_zero(runs.first)
            and not image.is_zero(runs.second)
        ):
            return
    raise AdapterError("the adapter has no effect: A or B of every module is all zeros")


def _warn_about_rounding(modules: Sequence[ModuleTensors], dtype: torch.dtype) -> tuple[str, ...]:
    """A warning if the pool's dtype cannot hold the file's numbers exactly."""
    for module in modules:
        for name, tensor in module.named:
            if torch.promote_types(tensor.dtype, dtype) == dtype:
                continue
            if not torch.equal(tensor.to(dtype).to(tensor.dtype), tensor):
                stored, rounded = _name_dtype(tensor.dtype), _name_dtype(dtype)
                return (
                    f"weights are rounded from {stored} to {rounded}, which this model computes in "
                    f"(tensor {name} and perhaps others)",
                )
    return ()


def _name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
