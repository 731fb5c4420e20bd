"""Settings of an author's code, of sessions and of secure mode.

The operator's variables:

HOSTELRY_CUSTOM_CODE                 off (default), confined, trusted
HOSTELRY_CUSTOM_CODE_REQUIREMENTS    refuse (default), install

The model's options:

enable_stateful_sessions             true, as in LMI
sessions_expiration                  1200 s
entryPoint                           one of LMI's handlers, or model.py

SageMaker's secure mode:

SAGEMAKER_SECURE_MODE=true           on (set by the operator, never by the model's Environment)
SAGEMAKER_SECURITY_CONTROLS          the CONTROLS that hold (required)
SAGEMAKER_UNTRUSTED_CHANNELS         folders that are searched in addition to the model's own

Options outside ALLOWED_OPTIONS are always refused. Source: LMI's plugin for secure mode. Unlike the
plugin, the server also searches the model folder and a downloaded model, and refuses unknown
controls and chat templates in separate files.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path

import msgspec

from hostelry.base.errors import HostelryError
from hostelry.containers.lmi.artifact_path import CONTAINER_MODEL_DIR
from hostelry.containers.lmi.code.author_code import REQUIREMENTS, CodePolicy
from hostelry.containers.lmi.code.author_hooks import FILE
from hostelry.containers.lmi.sessions import DEFAULT_EXPIRATION_S
from hostelry.containers.lmi.settings.option_rows import OWN_HANDLERS
from hostelry.containers.lmi.settings.option_table import SECRETS
from hostelry.containers.lmi.settings.options import Options

MODE = "SAGEMAKER_SECURE_MODE"
CONTROLS = "SAGEMAKER_SECURITY_CONTROLS"
CHANNELS = "SAGEMAKER_UNTRUSTED_CHANNELS"
PICKLES = re.compile(r".*\.(bin|pt|pth|ckpt|pkl)", re.IGNORECASE)
TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
TOKENIZER_SETTINGS = "tokenizer_config.json"
MAX_SETTINGS_BYTES = 64 << 20
MAX_FILES = 200_000
PYTHONS = ("/opt/djl/vllm_venv/bin/python", "/usr/bin/python3")

ENVIRONMENT_NAMES = {
    "entrypoint": "option.entryPoint", "engine": "engine",
    "pythonexecutable": "option.pythonExecutable",
}  # fmt: skip
POLICY = "HOSTELRY_CUSTOM_CODE"
INSTALL = "HOSTELRY_CUSTOM_CODE_REQUIREMENTS"
MAX_EXPIRATION_S = 30 * 86_400


class SecurityControl(Enum):
    """One thing that the author may not bring."""

    SCRIPTS = "DISALLOW_CUSTOM_INFERENCE_SCRIPTS"
    REMOTE_CODE = "DISALLOW_TRUST_REMOTE_CODE"
    PICKLES = "DISALLOW_PICKLE_FILES"
    TEMPLATES = "DISALLOW_CHAT_TEMPLATE"
    REQUIREMENTS = "DISALLOW_REQUIREMENTS_TXT"


# The options that LMI's plugin lets an author set.
ALLOWED_OPTIONS = frozenset(
    """
    engine job_queue_size max_idle_time batch_size max_batch_delay max_dynamic_batch_size minWorkers
    maxWorkers load_on_devices option.mpi_mode option.entryPoint option.task option.model_id
    option.batch_size option.tensor_parallel_degree option.pipeline_parallel_degree
    option.rolling_batch option.dtype option.trust_remote_code option.revision
    option.max_rolling_batch_size option.parallel_loading option.model_loading_timeout
    option.output_formatter option.n_positions option.load_in_8bit option.unroll
    option.context_length_estimate option.low_cpu_mem_usage option.load_split_model
    option.compiled_graph_path option.group_query_attention
    option.enable_mixed_precision_accumulation option.enable_saturate_infinity
    option.speculative_draft_model option.speculative_length option.draft_model_compiled_path
    option.quantize option.max_rolling_batch_prefill_tokens option.max_model_len option.load_format
    option.enforce_eager option.gpu_memory_utilization option.draft_model_tp_size
    option.record_acceptance_rate option.enable_lora option.max_loras option.max_lora_rank
    option.lora_extra_vocab_size option.max_cpu_loras option.max_input_len option.max_output_len
    option.max_num_tokens option.use_custom_all_reduce option.tokens_per_block
    option.batch_scheduler_policy option.kv_cache_free_gpu_mem_fraction option.max_num_sequences
    option.enable_trt_overlap option.enable_kv_cache_reuse option.baichuan_model_version
    option.chatglm_model_version option.gpt_model_version option.multi_block_mode
    option.use_fused_mlp option.rotary_base option.rotary_dim option.rotary_scaling_type
    option.rotary_scaling_factor option.logits_dtype option.trtllm_checkpoint_path
    option.load_by_shard option.smoothquant_alpha option.smoothquant_per_token
    option.smoothquant_per_channel option.multi_query_mode option.awq_format option.awq_calib_size
    option.q_format option.calib_size option.calib_batch_size option.use_fp8_context_fmha
    option.enable_chunked_prefill option.cpu_offload_gb_per_gpu option.enable_prefix_caching
    option.disable_sliding_window option.enable_streaming option.tgi_compat
    option.pythonExecutable
    """.split()  # noqa: SIM905 - a table to read
)


class SecureModeError(HostelryError):
    """The model or an adapter brings something forbidden by secure mode. The message names it."""


class SecureMode(msgspec.Struct, frozen=True):
    """The controls that hold, and the folders searched in addition to the model's own."""

    controls: frozenset[SecurityControl]
    channels: tuple[str, ...] = ()

    def check_model(self, model_dir: Path, folder: Path) -> None:
        """Raise SecureModeError for a fault in the model folder, or in the model's own folder."""
        for place in (model_dir, folder):
            self._check_code(place, "model directory")
        channels = [channel_place(it, model_dir) for it in self.channels]
        for place in dict.fromkeys([*channels, model_dir, folder]):
            if not place.is_dir():
                raise SecureModeError(f"Path {place} of {CHANNELS} is not a directory.")
            self._check_files(place, str(place))

    def check_adapter(self, src: str) -> None:
        """Raise SecureModeError for an adapter's folder. A remote source cannot be searched."""
        if "://" in src or not Path(src).is_dir():
            raise SecureModeError(f"Adapter path {src} is not a valid directory.")
        self._check_code(Path(src), f"adapter at {src}")
        self._check_files(Path(src), f"adapter at {src}")

    def _check_code(self, folder: Path, where: str) -> None:
        if SecurityControl.SCRIPTS in self.controls and os.path.lexists(folder / "model.py"):
            raise SecureModeError(
                f"Custom model.py found in {where}, but custom inference scripts are prohibited "
                "in Secure Mode."
            )
        forbids_packages = SecurityControl.REQUIREMENTS in self.controls
        if forbids_packages and os.path.lexists(folder / "requirements.txt"):
            raise SecureModeError(
                f"requirements.txt found in {where}, but installing additional dependencies is "
                "prohibited in Secure Mode."
            )

    def _check_files(self, folder: Path, where: str) -> None:
        if not self.controls & {SecurityControl.PICKLES, SecurityControl.TEMPLATES}:
            return
        for path in files_below(folder):
            if SecurityControl.PICKLES in self.controls and PICKLES.fullmatch(path.name):
                raise SecureModeError(
                    f"Pickle-based file {path.name} found in {where}, but only the Safetensors "
                    "format is permitted in Secure Mode."
                )
            if SecurityControl.TEMPLATES in self.controls and has_template(path):
                raise SecureModeError(
                    f"Jinja chat_template field found in {path}, but is prohibited in Secure Mode."
                )


def channel_place(channel: str, model_dir: Path) -> Path:
    """Find the folder of a channel of the container. /opt/ml/model is the model folder."""
    path = Path(channel)
    if path.is_relative_to(CONTAINER_MODEL_DIR):
        return model_dir / path.relative_to(CONTAINER_MODEL_DIR)
    return path


def secure_mode(env: Mapping[str, str], options: Options) -> SecureMode | None:
    """Secure mode by the environment. None if it is off.

    Raises SecureModeError for options that it forbids.
    """
    if env.get(MODE, "").strip().lower() != "true":
        return None
    names = [it.strip() for it in env.get(CONTROLS, "").split(",") if it.strip()]
    if not names:
        raise SecureModeError(f"{MODE} is true, but {CONTROLS} is not set; name controls in it")
    known = {it.value: it for it in SecurityControl}
    if unknown := [it for it in names if it not in known]:
        raise SecureModeError(f"{CONTROLS} has {unknown[0]!r}; it knows {', '.join(known)}")
    channels = [it.strip() for it in env.get(CHANNELS, "").split(",") if it.strip()]
    mode = SecureMode(frozenset(known[it] for it in names), tuple(channels))
    check_options(mode, options)
    return mode


def check_options(mode: SecureMode, options: Options) -> None:
    """Raise SecureModeError for an option that an author may not set."""
    for setting in options.settings.values():
        given = setting.given_as
        if given.startswith("OPTION_"):
            option = given.removeprefix("OPTION_").lower()
            given = ENVIRONMENT_NAMES.get(option, f"option.{option}")
        if not given.isupper() and given not in ALLOWED_OPTIONS:
            raise SecureModeError(f"Property {given} is prohibited from being set in Secure Mode.")
    check_values(mode, options)


def check_values(mode: SecureMode, options: Options) -> None:
    """Raise SecureModeError for a value that a control forbids."""
    settings = {name: it.value for name, it in options.settings.items()}
    trusts = settings.get("trust_remote_code", "").lower() == "true"
    if SecurityControl.REMOTE_CODE in mode.controls and trusts:
        raise SecureModeError("Setting TRUST_REMOTE_CODE to True is prohibited in Secure Mode.")
    entry = settings.get("entryPoint", "djl_python.")
    if SecurityControl.SCRIPTS in mode.controls and not entry.startswith("djl_python."):
        raise SecureModeError("Custom entrypoint is prohibited in Secure Mode.")
    if settings.get("pythonExecutable", PYTHONS[0]) not in PYTHONS:
        raise SecureModeError(
            "Custom Python executable path is prohibited in Secure Mode. Only the following paths "
            f"are allowed: {', '.join(PYTHONS)}"
        )


def files_below(folder: Path) -> Iterator[Path]:
    """Every file below a folder, links to folders followed once. Raises SecureModeError."""
    seen: set[str] = set()
    count = 0
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        for name in names:
            count += 1
            if count > MAX_FILES:
                raise SecureModeError(f"{folder} holds more than {MAX_FILES} files")
            yield Path(root, name)


def has_template(path: Path) -> bool:
    """True if the file contains a chat template. Raises SecureModeError if it cannot be read."""
    if path.name in TEMPLATE_FILES:
        return True
    if path.name != TOKENIZER_SETTINGS:
        return False
    try:
        if path.stat().st_size > MAX_SETTINGS_BYTES:
            raise SecureModeError(f"{path} has more than {MAX_SETTINGS_BYTES} bytes")
        members = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise SecureModeError(f"{path} cannot be read: {error}") from error
    return isinstance(members, dict) and "chat_template" in members


class CodeSettingsError(HostelryError):
    """A setting of custom code or sessions is invalid. The message names it and its choices."""


class CodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of custom code and sessions.

    `options` are the model's options as the code sees them, without tokens and keys. Sessions are
    off without `sessions_expiration_s`, and secure mode is off without `secure`.
    """

    policy: CodePolicy = CodePolicy.OFF
    installs: bool = False
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    sessions_expiration_s: int | None = DEFAULT_EXPIRATION_S
    secure: SecureMode | None = None


def code_settings(
    env: Mapping[str, str], options: Options, listing: Collection[str]
) -> CodeSettings:
    """The settings. Raises CodeSettingsError, SecureModeError."""
    settings = CodeSettings(
        policy=CodePolicy(choose_value(env, POLICY, [it.value for it in CodePolicy])),
        installs=choose_value(env, INSTALL, ["refuse", "install"]) == "install",
        options={
            name: it.value
            for name, it in options.settings.items()
            if not name.startswith("/") and not name.endswith(SECRETS)
        },
        sessions_expiration_s=sessions_expiration(options),
        secure=secure_mode(env, options),
    )
    check_code(settings, options, listing)
    return settings


def check_code(settings: CodeSettings, options: Options, listing: Collection[str]) -> None:
    """Raise CodeSettingsError for code that is there and cannot run, or is named and absent."""
    entry = options.settings.get("entryPoint")
    if entry and entry.value not in OWN_HANDLERS and entry.value != FILE:
        raise CodeSettingsError(
            f"{entry.given_as} is {entry.value[:80]!r}; it must be {FILE}, or one of LMI's own "
            f"handlers ({', '.join(OWN_HANDLERS)})"
        )
    is_named = entry is not None and entry.value == FILE
    if (is_named or FILE in listing) and settings.policy is CodePolicy.OFF:
        raise CodeSettingsError(
            f"the model folder holds {FILE}, or names it, but custom code is off. "
            "The operator allows it with "
            f"{POLICY}=confined; without that, remove it, or bring an image of your own"
        )
    if is_named and FILE not in listing:
        raise CodeSettingsError(f"entryPoint is {FILE}, which the model folder does not hold")
    if REQUIREMENTS in listing and not settings.installs:
        raise CodeSettingsError(
            f"the model folder holds {REQUIREMENTS}, which is not installed. The operator allows "
            f"that with {INSTALL}=install; without that, remove it"
        )


def sessions_expiration(options: Options) -> int | None:
    """How long a session is open. None if sessions are off."""
    enabled = options.settings.get("enable_stateful_sessions")
    if enabled and enabled.value.lower() not in ("true", "false"):
        raise CodeSettingsError(
            f"{enabled.given_as} is {enabled.value[:80]!r}; it must be true or false"
        )
    setting = options.settings.get("sessions_expiration")
    text = setting.value if setting else str(DEFAULT_EXPIRATION_S)
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not is_number or not 0 < int(text) <= MAX_EXPIRATION_S:
        raise CodeSettingsError(
            f"sessions_expiration is {text[:80]!r}; it must be a whole number of seconds from 1 to "
            f"{MAX_EXPIRATION_S}"
        )
    return None if enabled and enabled.value.lower() == "false" else int(text)


def choose_value(env: Mapping[str, str], name: str, choices: list[str]) -> str:
    """The value of a variable, the first of `choices` unless it is set."""
    value = env.get(name) or choices[0]
    if value not in choices:
        raise CodeSettingsError(f"{name} is {value[:80]!r}; it must be one of {', '.join(choices)}")
    return value
