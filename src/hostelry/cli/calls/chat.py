"""`hostelry chat`: chat with a model of the platform."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError
from hostelry.base.printable import printable
from hostelry.cli import completion as names
from hostelry.cli.calls.llm_calls import (
    AnswerTimes,
    LlmCalls,
    find_with_fallback,
    openai_calls,
    runtime_calls,
)
from hostelry.cli.home_option import HomeOption, home_at, load_home
from hostelry.cli.models.adapters import adapter_rows
from hostelry.cli.named import NamedModel, api_errors, called_model, find_named
from hostelry.home.aws_client import aws_client
from hostelry.home.home import UpConfig
from hostelry.loadtest.answers import AnswerPiece, ModelAnswerError

NO_TEMPLATE = "The model has no chat template: the text so far is completed."
STOPPED = "(stopped)"
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


def chat(
    name: Annotated[
        str,
        typer.Argument(
            help="Component, COMPONENT:ADAPTER, or endpoint.", autocompletion=names.served
        ),
    ],
    once: Annotated[
        str | None,
        typer.Option("--once", help="Print the answer to this text and exit.", show_default=False),
    ] = None,
    system: Annotated[
        str, typer.Option(help="System message of the chat.", show_default=False)
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Request setting, for example temperature=0.2.", show_default=False
        ),
    ] = None,
    home: HomeOption = None,
) -> None:
    """Chat with a model. Answers are streamed, with time to first token and tokens per second.

    If standard input is not a terminal, its text is one question. Answers go to standard output,
    everything else to standard error. Ctrl-C ends an answer, and /help lists the commands.

    Exit code 1 if there is no such model, or if a question from --once or a pipe got no answer.

    Example: hostelry chat llama

    Example: echo "Name three rivers." | hostelry chat llama:pirate --set temperature=0
    """
    at = home_at(home)
    config, credentials = load_home(at)
    conversation = Conversation(system=system)
    for given in settings or ():
        key, _, value = given.partition("=")
        conversation.settings[key] = setting(key, value)
    sagemaker = aws_client("sagemaker", config, credentials, tries=2)
    model = find_with_fallback(at, config, credentials, partial(called_model, name=name))
    by_openai = model.component is not None
    calls = (
        openai_calls(config, credentials)
        if by_openai
        else runtime_calls(config, credentials, model.endpoint)
    )
    talk = Talk(config, sagemaker, calls, model, conversation)
    if once is not None or not sys.stdin.isatty():
        talk.answer(read_question(once, config.max_body_bytes))
    else:
        talk.run()


def read_question(once: str | None, most_bytes: int) -> str:
    """The text of --once or standard input. Raises TerminalError if it is empty or too long."""
    if once is None:
        content = sys.stdin.buffer.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise TerminalError(f"standard input has more than the {most_bytes} bytes of a request")
        try:
            once = content.decode()
        except UnicodeDecodeError:
            raise TerminalError("standard input is not UTF-8 text") from None
    if not once.strip():
        raise TerminalError("there is no question: give a text by --once or on standard input")
    return once.strip("\n")


class ShownNote(msgspec.Struct, frozen=True):
    """A line for the user."""

    text: str


class AskedQuestion(msgspec.Struct, frozen=True):
    """A question to the model."""

    text: str


class ChosenAdapter(msgspec.Struct, frozen=True):
    """The adapter to switch to, or "" for the base."""

    name: str


class ListAdapters:
    """Show the base's adapters."""


class QuitChat:
    """End the conversation."""


Turn = ShownNote | AskedQuestion | ChosenAdapter | ListAdapters | QuitChat | None


class Conversation(msgspec.Struct):
    """The turns so far, and the settings of the next requests.

    `has_template` becomes False if the model has no chat template. Then requests are completions.
    """

    system: str = ""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    turns: list[tuple[str, str]] = msgspec.field(default_factory=list)
    has_template: bool = True

    def take(self, line: str) -> Turn:
        """Parse an entered line. None if the line is empty."""
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
        """Add a question and its answer to the conversation."""
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


class Talk(msgspec.Struct):
    """A conversation with a model on a terminal."""

    config: UpConfig
    sagemaker: Any
    calls: LlmCalls
    model: NamedModel
    conversation: Conversation
    is_reasoning: bool = False

    def run(self) -> None:
        """Read lines until the end of input or /quit."""
        note(f"{self.model.openai_model}: /help for help, /quit or Ctrl-D to end.")
        while True:
            try:
                line = typed_line(f"{self.model.openai_model}> ")
            except KeyboardInterrupt:
                note("\n(/quit or Ctrl-D ends)")
                continue
            except EOFError:
                note("")
                return
            try:
                if self.take(line) is False:
                    return
            except KeyboardInterrupt:
                note(STOPPED)
            except TerminalError as error:
                note(f"hostelry: {error}")

    def take(self, line: str) -> bool:
        """Carry out an entered line. False if the line ends the conversation."""
        match self.conversation.take(line):
            case QuitChat():
                return False
            case ShownNote(text):
                note(text)
            case AskedQuestion(text):
                self.answer(text)
            case ChosenAdapter(name):
                self.choose(name)
            case ListAdapters():
                self.list_adapters()
        return True

    def answer(self, question: str) -> None:
        """Print the answer as it comes, then its times. Raises TerminalError without an answer."""
        try:
            times = self.stream(question)
        except ModelAnswerError as error:
            if not self.conversation.has_template or not lacks_template(str(error)):
                raise
            self.conversation.has_template = False
            note(NO_TEMPLATE)
            times = self.stream(question)
        if times is not None:
            note(f"[{times.text()}]")

    def stream(self, question: str) -> AnswerTimes | None:
        """Print one answer. None if Ctrl-C ended it, and then the text so far is kept."""
        texts: list[str] = []

        def show(piece: AnswerPiece) -> None:
            if piece.is_reasoning != self.is_reasoning:
                write("\n" if self.is_reasoning else "(thinking) ")
                self.is_reasoning = piece.is_reasoning
            if not piece.is_reasoning:
                texts.append(piece.text)
            write(printable(piece.text))

        body = self.conversation.body(self.model.openai_model, question)
        self.is_reasoning = False
        try:
            times = self.calls.answer(body, show)
        except KeyboardInterrupt:
            times = None
        except TerminalError:
            if texts:
                write("\n")
            raise
        write("\n")
        self.conversation.answered(question, "".join(texts))
        if times is None:
            if not sys.stdin.isatty():
                raise KeyboardInterrupt
            note(STOPPED)
        return times

    def choose(self, name: str) -> None:
        """Switch to an adapter of the base, or to the base itself, and keep the conversation."""
        base = self.base
        if base is None:
            raise TerminalError("an endpoint of one model has no adapters that requests choose")
        with api_errors(self.config):
            chosen = find_named(self.sagemaker, f"{base}:{name}" if name else f"component/{base}")
        if chosen.base not in (None, base):
            raise TerminalError(f"{name} is an adapter of {chosen.base}, not of {base}")
        if name and chosen.adapter is None and chosen.base is None:
            raise TerminalError(f"{name} is a component of its own, not an adapter of {base}")
        self.model = chosen
        note(f"{chosen.openai_model} answers from now on.")

    def list_adapters(self) -> None:
        """Print the adapter components of the base."""
        base = self.base
        if base is None:
            raise TerminalError("an endpoint of one model has no adapters that requests choose")
        with api_errors(self.config):
            rows = adapter_rows(self.sagemaker, self.model.endpoint, base)
        for row in rows:
            note(f"  {row.name}  {row.status}")
        if not rows:
            note(f"{base} has no adapter components: `hostelry adapters add {base} NAME SOURCE`.")
        note("Those inside its archive are not listed; /adapter NAME takes them, too.")

    @property
    def base(self) -> str | None:
        """The component that has the adapters. None for an endpoint with one model."""
        return self.model.base or self.model.component


def typed_line(prompt: str) -> str:
    """A line from the terminal, with history and editing if Python has readline."""
    with suppress(ImportError):
        import readline  # noqa: F401 - input() uses it once it is there
    return input(prompt)


def write(text: str) -> None:
    """Print `text` and flush. Characters that the terminal's encoding lacks are replaced."""
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """Print a line that is not part of the answer."""
    typer.echo(printable(text), err=True)


def setting(name: str, value: str) -> float | int | str:
    """The value of a setting. Raises TerminalError for an unknown name or a wrong value."""
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
    """All settings on one line."""
    shown = ", ".join(f"{name} {value}" for name, value in settings.items())
    return shown or "All settings are the model's own."


def lacks_template(message: str) -> bool:
    """Whether an error says that the model has no chat template."""
    text = message.lower()
    return "chat template" in text and ("no " in text or "not " in text)
