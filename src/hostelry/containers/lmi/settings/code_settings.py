"""Settings of an author's code, of sessions and of secure mode: the operator's, then the options.

HOSTELRY_CUSTOM_CODE                 off (default), confined, trusted
HOSTELRY_CUSTOM_CODE_REQUIREMENTS    refuse (default), install
enable_stateful_sessions             true, as in LMI
sessions_expiration                  1200 s
entryPoint                           one of LMI's handlers, or model.py
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hostelry.base.errors import HostelryError
from hostelry.containers.lmi.code.author_code import REQUIREMENTS, CodePolicy
from hostelry.containers.lmi.code.author_hooks import FILE
from hostelry.containers.lmi.sessions.open_sessions import DEFAULT_EXPIRATION_S
from hostelry.containers.lmi.settings.lmi_options import OWN_HANDLERS
from hostelry.containers.lmi.settings.option_table import SECRETS
from hostelry.containers.lmi.settings.options import Options
from hostelry.containers.lmi.settings.secure_mode import SecureMode, secure_mode

POLICY = "HOSTELRY_CUSTOM_CODE"
INSTALL = "HOSTELRY_CUSTOM_CODE_REQUIREMENTS"
MAX_EXPIRATION_S = 30 * 86_400


class CodeSettingsError(HostelryError):
    """A setting of custom code or sessions is wrong; the message names it and its choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSettings:
    """Settings of custom code and sessions.

    `options` are the model's, as the code sees them: without tokens and keys.
    `sessions_expiration_s` None: sessions are
    off. `secure` None: secure mode is off.
    """

    policy: CodePolicy = CodePolicy.OFF
    installs: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    sessions_expiration_s: int | None = DEFAULT_EXPIRATION_S
    secure: SecureMode | None = None


def code_settings(
    env: Mapping[str, str], options: Options, listing: Collection[str]
) -> CodeSettings:
    """The settings. Raises CodeSettingsError, SecureModeError."""
    settings = CodeSettings(
        policy=CodePolicy(chosen(env, POLICY, [it.value for it in CodePolicy])),
        installs=chosen(env, INSTALL, ["refuse", "install"]) == "install",
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
    """How long a session is open; None where sessions are off."""
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


def chosen(env: Mapping[str, str], name: str, choices: list[str]) -> str:
    """The value of a variable, the first of `choices` unless it is set."""
    value = env.get(name) or choices[0]
    if value not in choices:
        raise CodeSettingsError(f"{name} is {value[:80]!r}; it must be one of {', '.join(choices)}")
    return value
