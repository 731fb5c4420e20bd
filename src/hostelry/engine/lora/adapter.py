"""An adapter's weights, checked against the base model it is for."""

import hashlib
import pickle
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from hostelry.engine.lora.config import AdapterConfig, load_config
from hostelry.engine.lora.errors import AdapterError
from hostelry.engine.lora.shapes import ModuleShape, TargetSpace

# I in-features, O out-features, R rank


@dataclass(frozen=True, slots=True)
class ModuleWeights:
    """One module's update: y += x @ down.T @ up.T; the scale is folded into `up`. fp32."""

    down_RI: torch.Tensor
    up_OR: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The targeted modules by path; `content_id` is a hash of configuration and weights."""

    modules: Mapping[str, ModuleWeights]
    content_id: str

    @property
    def max_rank(self) -> int:
        """The largest rank of any module."""
        return max(weights.down_RI.shape[0] for weights in self.modules.values())

    @property
    def num_parameters(self) -> int:
        """Numbers in all A and B."""
        return sum(w.down_RI.numel() + w.up_OR.numel() for w in self.modules.values())


def load_adapter(
    folder: Path, space: TargetSpace, *, max_rank: int, allow_zero_effect: bool = False
) -> Adapter:
    """The adapter in `folder`, applied to `space` exactly as PEFT would.

    Reads adapter_config.json and adapter_model.safetensors, or adapter_model.bin without running
    any code in it. Raises AdapterError naming the field or tensor otherwise.
    """
    config = load_config(folder)
    targeted = _targeted(config, space)
    for module in targeted:
        rank = config.rank_of(module.path)
        if rank > max_rank:
            raise AdapterError(f"r is {rank} at {module.path}; max_lora_rank is {max_rank}")
    path = _weights_path(folder)
    tensors = _read(path)
    modules = {module.path: _take(tensors, module, config) for module in targeted}
    if tensors:
        raise AdapterError(f"{path.name} holds {min(tensors)}, which no targeted module uses")
    if not allow_zero_effect and not any(_has_effect(weights) for weights in modules.values()):
        raise AdapterError("the adapter has no effect: A or B of every module is all zeros")
    return Adapter(modules=modules, content_id=_content_id(folder / "adapter_config.json", path))


def _targeted(config: AdapterConfig, space: TargetSpace) -> list[ModuleShape]:
    if not config.targets_all_linear:  # which leaves out embeddings and the output projection
        for path in space.other_paths:
            if config.targets(path):
                raise AdapterError(
                    f"target_modules includes {path}; only the linear modules of the layers are "
                    "supported"
                )
    targeted = [module for module in space.modules if config.targets(module.path)]
    if not targeted:
        raise AdapterError(
            f"target_modules is {config.target_modules!r}, which names no linear module of the base"
        )
    return targeted


def _weights_path(folder: Path) -> Path:
    for name in ("adapter_model.safetensors", "adapter_model.bin"):
        if (folder / name).is_file():
            return folder / name
    raise AdapterError("there is neither adapter_model.safetensors nor adapter_model.bin")


def _named_global(message: str) -> str:
    """The function or class that a refused pickle asks for, as torch names it."""
    found = re.search(r"GLOBAL (\S+)", message)
    return f" (it asks for {found[1]})" if found else ""


def _read(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of the file by name; a pickle may hold nothing but tensors."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except SafetensorError as error:
        raise AdapterError(f"{path.name} cannot be read: {error}") from error
    except pickle.UnpicklingError as error:
        raise AdapterError(
            f"{path.name} holds more than tensors, or is damaged"
            f"{_named_global(str(error))}; code in it is never run"
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise AdapterError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor)
        for name, tensor in tensors.items()
    ):
        raise AdapterError(f"{path.name} holds no table of tensors")
    return dict(tensors)


def _take(
    tensors: dict[str, torch.Tensor], module: ModuleShape, config: AdapterConfig
) -> ModuleWeights:
    """Remove the module's A and B from `tensors` and check them."""
    rank = config.rank_of(module.path)
    down_RI = _take_tensor(tensors, module.path, "lora_A", (rank, module.in_features))
    up_OR = _take_tensor(tensors, module.path, "lora_B", (module.out_features, rank))
    up_OR = up_OR * config.scale_of(module.path)
    if not torch.isfinite(up_OR).all():
        raise AdapterError(f"lora_B of {module.path} times its scale is not finite")
    return ModuleWeights(down_RI, up_OR)


def _take_tensor(
    tensors: dict[str, torch.Tensor], path: str, half: str, shape: tuple[int, int]
) -> torch.Tensor:
    name = f"base_model.model.{path}.{half}.weight"
    tensor = tensors.pop(name, None)
    if tensor is None:
        raise AdapterError(f"tensor {name} is missing; target_modules includes {path}")
    if tuple(tensor.shape) != shape:
        raise AdapterError(
            f"tensor {name} has shape {tuple(tensor.shape)}; r and the base model ask for {shape}"
        )
    if not tensor.is_floating_point():
        raise AdapterError(f"tensor {name} has dtype {tensor.dtype}; it must be a float type")
    if not torch.isfinite(tensor).all():
        raise AdapterError(f"tensor {name} holds nan or inf")
    return tensor.detach().to(torch.float32)


def _has_effect(weights: ModuleWeights) -> bool:
    return bool(weights.up_OR.any()) and bool(weights.down_RI.any())


def _content_id(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
