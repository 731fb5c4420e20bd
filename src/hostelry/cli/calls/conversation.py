"""A conversation with a model: lines in, requests and notes out. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hostelry.base.errors import TerminalError

HELP = """\
/adapter NAME   answer with that adapter from now on; /adapter alone: with the base
/adapters       the base's adapters
/system TEXT    the system message, without TEXT none; what was said is forgotten
/set NAME VALUE a setting, for example /set temperature 0.2; /set alone: all settings
/reset          forget what was said
/help           this list
/quit           end; so does Ctrl-D. Ctrl-C ends an answer
A line that begins with // is sent with one slash."""
NUMBERS: dict[str, tuple[type[int] | type[float], float, float]] = {
    "temperature": (float, 0.0, 2.0),
    "top_p": (float, 0.0, 1.0),
    "top_k": (int, -1, 1_000_000),
    "min_p": (float, 0.0, 1.0),
    "max_tokens": (int, 1, 1_000_000),
    "seed": (int, 0, 2**63 - 1),
    "frequency_penalty": (float, -2.0, 2.0),
    "presence_penalty": (float, -2.0, 2.0),
    "repetition_penalty": (float, 0.0, 10.0),
}
STOP = "stop"


@dataclass(frozen=True, slots=True)
class ShownNote:
    """A line for the person."""

    text: str


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A text for the model."""

    text: str


@dataclass(frozen=True, slots=True)
class ChosenAdapter:
    """Answer with this adapter from now on; "" with the base."""

    name: str


class ListAdapters:
    """Show the base's adapters."""


class QuitChat:
    """End the conversation."""


Turn = ShownNote | AskedQuestion | ChosenAdapter | ListAdapters | QuitChat | None


@dataclass(slots=True)
class Conversation:
    """What was said, and the settings of what will be.

    `has_template` becomes False where the model has no chat template: its requests are completions.
    """

    system: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    turns: list[tuple[str, str]] = field(default_factory=list)
    has_template: bool = True

    def take(self, line: str) -> Turn:
        """What a typed line asks for; None for an empty one."""
        text = line.strip()
        if not text.startswith("/"):
            return AskedQuestion(text) if text else None
        if text.startswith("//"):
            return AskedQuestion(text[1:])
        name, _, rest = text[1:].partition(" ")
        rest = rest.strip()
        match name:
            case "help" | "?":
                return ShownNote(HELP)
            case "quit" | "exit" | "bye":
                return QuitChat()
            case "reset":
                self.turns.clear()
                return ShownNote("What was said is forgotten.")
            case "system":
                self.system = rest
                self.turns.clear()
                return ShownNote("The system message is set." if rest else "No system message.")
            case "adapter":
                return ChosenAdapter(rest)
            case "adapters":
                return ListAdapters()
            case "set":
                return ShownNote(self._set(rest))
        return ShownNote(f"There is no /{name}: /help lists commands; // sends a slash.")

    def body(self, model: str, question: str) -> dict[str, Any]:
        """The request for an answer to `question`."""
        options = {"stream": True, "stream_options": {"include_usage": True}, **self.settings}
        if not self.has_template:
            texts = [text for turn in self.turns for text in turn]
            prompt = "\n".join(filter(None, [self.system, *texts, question]))
            return {"model": model, "prompt": prompt, **options}
        messages = [{"role": "system", "content": self.system}] if self.system else []
        for asked, answer in self.turns:
            messages.append({"role": "user", "content": asked})
            messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": question})
        return {"model": model, "messages": messages, **options}

    def answered(self, question: str, answer: str) -> None:
        """Keep a turn."""
        self.turns.append((question, answer))

    def _set(self, given: str) -> str:
        name, _, value = given.partition(" ")
        if not name:
            return settings_text(self.settings)
        if not value.strip():
            self.settings.pop(name, None)
            return f"{name} is the model's own."
        try:
            self.settings[name] = setting(name, value.strip())
        except TerminalError as error:
            return f"{error}."
        return settings_text(self.settings)


def setting(name: str, value: str) -> float | int | str:
    """The value of a setting; raises TerminalError for an unknown name or a wrong value."""
    if name == STOP:
        return value
    if name not in NUMBERS:
        raise TerminalError(f"there is no setting {name}: there are {', '.join([*NUMBERS, STOP])}")
    kind, least, most = NUMBERS[name]
    try:
        number = kind(value)
    except ValueError:
        number = None
    if number is None or not least <= number <= most:
        what = "a whole number" if kind is int else "a number"
        raise TerminalError(f"{name} is {what} from {least:g} to {most:g}, not {value[:100]}")
    return number


def settings_text(settings: Mapping[str, Any]) -> str:
    """All settings in a line."""
    shown = ", ".join(f"{name} {value}" for name, value in settings.items())
    return shown or "All settings are the model's own."


def lacks_template(message: str) -> bool:
    """Whether an error says that the model has no chat template."""
    text = message.lower()
    return "chat template" in text and ("no " in text or "not " in text)
