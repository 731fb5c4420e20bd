"""`hostelry chat`: talk with a model of the platform."""

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from hostelry.base.errors import TerminalError
from hostelry.cli.calls.answer_reader import AnswerPiece, AnswerTimes, ModelAnswerError
from hostelry.cli.calls.conversation import (
    AskedQuestion,
    ChosenAdapter,
    Conversation,
    ListAdapters,
    QuitChat,
    ShownNote,
    lacks_template,
    setting,
)
from hostelry.cli.calls.llm_calls import LlmCalls, openai_calls, runtime_calls
from hostelry.cli.calls.routed_names import named
from hostelry.cli.completion import names
from hostelry.cli.home_option import HomeOption, home_at, settled
from hostelry.cli.models.adapter_rows import adapter_rows
from hostelry.cli.named import NamedModel, api_errors, called_model, find_named
from hostelry.cli.printable import printable
from hostelry.home.aws_client import aws_client
from hostelry.home.home import UpConfig

NO_TEMPLATE = "The model has no chat template: the text so far is completed."
STOPPED = "(stopped)"


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
    config, credentials = settled(at)
    conversation = Conversation(system=system)
    for given in settings or ():
        key, _, value = given.partition("=")
        conversation.settings[key] = setting(key, value)
    sagemaker = aws_client("sagemaker", config, credentials, tries=2)
    model = named(at, config, credentials, partial(called_model, name=name))
    by_openai = model.component is not None
    calls = (
        openai_calls(config, credentials)
        if by_openai
        else runtime_calls(config, credentials, model.endpoint)
    )
    talk = Talk(config, sagemaker, calls, model, conversation)
    if once is not None or not sys.stdin.isatty():
        talk.answer(question_of(once, config.max_body_bytes))
    else:
        talk.run()


def question_of(once: str | None, most_bytes: int) -> str:
    """The text of --once or of standard input; raises TerminalError for none, or too much."""
    if once is None:
        content = sys.stdin.buffer.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise TerminalError(f"standard input has more than the {most_bytes} bytes of a request")
        try:
            once = content.decode()
        except UnicodeDecodeError:
            raise TerminalError("standard input is no UTF-8 text") from None
    if not once.strip():
        raise TerminalError("there is no question: give a text by --once or on standard input")
    return once.strip("\n")


@dataclass(slots=True)
class Talk:
    """A conversation with a model on a terminal."""

    config: UpConfig
    sagemaker: Any
    calls: LlmCalls
    model: NamedModel
    conversation: Conversation
    is_reasoning: bool = False

    def run(self) -> None:
        """Take lines until the end of input or /quit."""
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
        """Do what a line asks for; False where it ends the conversation."""
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
        """Print the answer as it comes, then its times; raises TerminalError without one."""
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
        """Print one answer; None where Ctrl-C ended it, whose text until then is kept."""
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
        """Answer with that adapter of the base, or with the base; what was said stays."""
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
        """The component whose adapters there are; None of an endpoint of one model."""
        return self.model.base or self.model.component


def typed_line(prompt: str) -> str:
    """A line from the terminal, with history and editing where Python has readline."""
    with suppress(ImportError):
        import readline  # noqa: F401 - input() uses it once it is there
    return input(prompt)


def write(text: str) -> None:
    """Print at once, whatever the terminal's encoding lacks."""
    sys.stdout.buffer.write(text.encode(sys.stdout.encoding or "utf-8", "replace"))
    sys.stdout.buffer.flush()


def note(text: str) -> None:
    """A line that is no part of the answer."""
    typer.echo(printable(text), err=True)
