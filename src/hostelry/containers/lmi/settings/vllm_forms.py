"""Forms of the values that vLLM's engine gets, and their reading. Pure.

A value never names code, a host, a port or a file, except for a draft model inside the model
folder. ListedMembers of JSON objects that are not listed here are refused for the same reason.
"""

from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta

from hostelry.base.json import convert, decode

MAX_LISTED = 256
MAX_REASON_CHARACTERS = 200  # the reason may repeat the value
Flag = bool
Count = Annotated[int, Meta(ge=1, le=2**53 - 1)]
Size = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Share = Annotated[float, Meta(gt=0, le=1)]
Headroom = Annotated[float, Meta(ge=0, lt=1)]
Gib = Annotated[float, Meta(ge=0, le=2**20)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Names = Annotated[list[Name], Meta(min_length=1, max_length=MAX_LISTED)]
Counts = Annotated[list[Count], Meta(min_length=1, max_length=MAX_LISTED)]
Path = Annotated[str, Meta(min_length=1, max_length=1024)]

CacheDtype = Literal[
    "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc", "fp8_ds_mla", "fp8_per_token_head",
    "int8_per_token_head", "int4_per_token_head", "nvfp4", "nvfp4_4over6", "nvfp4_ds_mla",
    "turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc",
    "ultraquant_4bit",
]  # fmt: skip
Quantization = Literal[
    "awq", "awq_marlin", "auto_awq", "gptq", "gptq_marlin", "auto_gptq", "fp8", "fp8_per_tensor",
    "fp8_per_block", "fp8_per_channel", "mxfp8", "mxfp4", "int8_per_channel_weight_only",
    "nvfp4_per_token", "compressed-tensors", "experts_int8", "modelopt",
    "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed", "moe_wna16", "quark", "inc",
]  # fmt: skip
SpeculationMethod = Literal[
    "ngram", "ngram_gpu", "draft_model", "eagle", "eagle3", "medusa", "mlp_speculator", "mtp",
    "dflash", "dspark",
]  # fmt: skip


class ListedMembers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object with known members, which are left out unless they are given."""


class Speculation(ListedMembers, frozen=True):
    """`speculative_config`. `model` is a folder inside the model folder."""

    method: SpeculationMethod | None = None
    model: Path | None = None
    num_speculative_tokens: Annotated[int, Meta(ge=1, le=64)] | None = None
    prompt_lookup_min: Count | None = None
    prompt_lookup_max: Count | None = None
    draft_tensor_parallel_size: Count | None = None
    max_model_len: Count | None = None
    quantization: Quantization | None = None
    disable_padded_drafter_batch: bool | None = None


class Passes(ListedMembers, frozen=True):
    """`compilation_config.pass_config`."""

    eliminate_noops: bool | None = None
    enable_qk_norm_rope_fusion: bool | None = None
    fuse_act_quant: bool | None = None
    fuse_allreduce_rms: bool | None = None
    fuse_attn_quant: bool | None = None
    fuse_norm_quant: bool | None = None


class Compilation(ListedMembers, frozen=True):
    """`compilation_config` without names of functions, passes and folders."""

    mode: Literal[0, 1, 2, 3] | None = None
    cudagraph_mode: (
        Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"] | None
    ) = None
    cudagraph_capture_sizes: Counts | None = None
    max_cudagraph_capture_size: Size | None = None
    cudagraph_num_of_warmups: Size | None = None
    compile_sizes: Counts | None = None
    custom_ops: (
        Annotated[
            list[Annotated[str, Meta(pattern=r"^([+-][a-z0-9_]{1,64}|all|none)$")]],
            Meta(max_length=MAX_LISTED),
        ]
        | None
    ) = None
    use_inductor_graph_partition: bool | None = None
    pass_config: Passes | None = None


class Balancing(ListedMembers, frozen=True):
    """`eplb_config`."""

    window_size: Count | None = None
    step_interval: Count | None = None
    num_redundant_experts: Size | None = None
    log_balancedness: bool | None = None
    use_async: bool | None = None


def read_form(text: str, form: Any) -> Any:
    """The value in `text`, as vLLM takes it. Raises ValueError.

    A list is JSON, or has commas or spaces between its items. An object is JSON.
    """
    plain = text.strip()
    try:
        if isinstance(form, type) and issubclass(form, ListedMembers):
            return msgspec.to_builtins(decode(plain, form))
        if is_list(form) and plain.startswith("["):
            return decode(plain, form)
        if is_list(form):
            return convert(plain.replace(",", " ").split(), form, strict=False)
        lower = plain.lower()
        return convert(lower if is_choice(form) else plain, form, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        choices = f"it must be one of {', '.join(map(str, get_args(form)))}"
        reason = choices if is_choice(form) else str(error)[:MAX_REASON_CHARACTERS]
        raise ValueError(reason) from error


def is_list(form: Any) -> bool:
    """True for a form of lists."""
    return get_origin(get_args(form)[0] if get_args(form) else form) is list


def is_choice(form: Any) -> bool:
    """True for a form of some texts, which are in small letters."""
    return get_origin(form) is Literal
