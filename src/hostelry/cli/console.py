"""`hostelry console`."""

import webbrowser
from typing import Annotated

import typer

from hostelry.base.errors import TerminalError
from hostelry.base.files import write_whole
from hostelry.cli.control_requests import document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json

# Other users of this machine can read a command line, so the browser opens a page with the link.
PAGE = (
    '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    '<meta http-equiv="refresh" content="0; url={url}"><title>Hostelry</title>'
    '<a href="{url}">Open the console</a>'
)


def console(
    home: HomeOption = None,
    acts: Annotated[
        bool, typer.Option("--acts", help="Allow the session to scale and delete.")
    ] = False,
    open_: Annotated[bool, typer.Option("--open", help="Open the console in a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a link that opens the web console. The link works once, for five minutes.

    Example: hostelry console

    Example: hostelry console --acts --open
    """
    at = home_at(home)
    config, credentials = load_home(at)
    if not config.has_console:
        raise TerminalError(
            "this platform was started with --no-console: start it without, by `hostelry up`"
        )
    answer = send(
        config,
        credentials,
        "POST",
        "/internal/sign-in-links",
        process="console",
        json={"acts": acts},
    )
    made = document(answer)
    if answer.status_code != 200:
        raise TerminalError(f"the console refused: {made.get('message', answer.status_code)}")
    url = f"{config.console_url}/sign-in#{made['code']}"
    if as_json:
        print_json({"url": url, "within_s": made["within_s"], "acts": acts})
    else:
        typer.echo(url)
        may = "look and act" if acts else "look"
        note = f"It signs one browser in, to {may}, within {made['within_s'] / 60:.0f} minutes."
        typer.echo(note, err=True)
    if open_:
        page = at.run / "console-sign-in.html"
        write_whole(page, PAGE.format(url=url).encode(), durable=False)
        webbrowser.open(page.as_uri())
