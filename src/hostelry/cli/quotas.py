"""`hostelry quotas`: limits of what callers may use, and how much of them is used."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from hostelry.base.errors import TerminalError, UsageError
from hostelry.base.printable import printable
from hostelry.cli import completion as names
from hostelry.cli.acts import person
from hostelry.cli.control_requests import control_answer, document, send
from hostelry.cli.home_option import HomeOption, JsonOption, home_at, load_home, print_json
from hostelry.cli.status_text import columns
from hostelry.domain.quota import EACH, LIMITS, SELECTORS, Priority, Quota
from hostelry.home.home import Credentials, UpConfig

USE_PATH = "/internal/quotas/use"
AccountOption = Annotated[
    str | None,
    typer.Option(help="Account, or '*' for each. Default: the platform's first account."),
]
NameArgument = Annotated[
    str, typer.Argument(help="Name of the quota.", autocompletion=names.quotas)
]
quotas = typer.Typer(
    help="Limits, budgets and priorities of callers.", no_args_is_help=True, rich_markup_mode=None
)


@quotas.callback()
def _group() -> None:
    """Quotas."""


@quotas.command("set")
def set_(  # noqa: PLR0913 - the options of a command
    name: NameArgument,
    account: AccountOption = None,
    principal: Annotated[
        str | None, typer.Option(help="ARN of a user or role, or '*' for each one separately.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(help="Endpoint, or '*' for each.", autocompletion=names.endpoints),
    ] = None,
    component: Annotated[
        str | None,
        typer.Option(
            help="Inference component, with its adapters, or '*' for each.",
            autocompletion=names.components,
        ),
    ] = None,
    adapter: Annotated[str | None, typer.Option(help="Adapter, or '*' for each.")] = None,
    openai_key: Annotated[
        str | None, typer.Option(help="Id of an OpenAI key, or '*' for each.")
    ] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Requests in 60 s.")] = None,
    concurrency: Annotated[int | None, typer.Option(help="Requests in flight.")] = None,
    prompt_tokens_per_minute: Annotated[
        int | None, typer.Option(help="Tokens of prompts in 60 s.")
    ] = None,
    generated_tokens_per_minute: Annotated[
        int | None, typer.Option(help="Tokens of answers in 60 s.")
    ] = None,
    tokens_per_day: Annotated[
        int | None, typer.Option(help="Tokens of prompts and answers since midnight UTC.")
    ] = None,
    cost_per_day: Annotated[
        float | None, typer.Option(help="Cost of calls since midnight UTC, by prices.toml.")
    ] = None,
    priority: Annotated[
        Priority | None, typer.Option(help="Order of calls that wait for a busy endpoint.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Share of a busy endpoint, compared with other callers.")
    ] = None,
    warn_only: Annotated[bool, typer.Option(help="Report a reached limit, and answer.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set a quota, in place of the quota of that name. It holds within a second.

    Without selectors it counts all calls of the account together. A quota keeps its use when its
    limits change.

    Example: hostelry quotas set team-a --principal arn:aws:iam::111122223333:user/ana
    --requests-per-minute 60

    Example: hostelry quotas set fair --endpoint chat --principal '*' --concurrency 8
    """
    config, credentials = load_home(home_at(home))
    given = {key: it for key, it in locals().items() if key in (*SELECTORS, *LIMITS)}
    given["account"] = account or credentials.account_id
    try:
        quota = Quota(
            id="",
            name=name,
            created_at=0.0,
            priority=priority,
            weight=weight,
            warn_only=warn_only,
            **given,
        )
    except ValueError as error:
        raise UsageError(f"quota {name}: {error}") from None
    body = {"who": person(), "quota": msgspec.to_builtins(quota)}
    answer = _post(config, credentials, "/internal/quotas", body)
    if as_json:
        print_json(answer)
        return
    typer.echo("\n".join([f"Set: {_describe(answer['quota'], '')}", *answer["notes"]]))


@quotas.command("list")
def list_(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List all quotas, with the largest use of each limit.

    Example: hostelry quotas list
    """
    found = _ask(home)
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(list_lines(found["quotas"], found["currency"])))


@quotas.command()
def show(name: NameArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show a quota, with the use of each of its limits.

    Uses are at most two seconds old.

    Example: hostelry quotas show team-a
    """
    found = _ask(home, name)
    if not found["quotas"]:
        there = ", ".join(it["name"] for it in _ask(home)["quotas"]) or "none"
        raise TerminalError(f"there is no quota {name}. There are: {there}")
    if as_json:
        print_json(found)
    else:
        lines = [line for it in found["quotas"] for line in quota_lines(it, found["currency"])]
        typer.echo("\n".join(lines))


@quotas.command()
def delete(
    name: NameArgument,
    account: AccountOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a quota, with its use.

    Example: hostelry quotas delete team-a
    """
    config, credentials = load_home(home_at(home))
    body = {"who": person(), "account": account or credentials.account_id, "name": name}
    answer = _post(config, credentials, "/internal/quotas/delete", body)
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"Deleted: {name}")


def _ask(home: Path | None, name: str | None = None) -> dict[str, Any]:
    config, credentials = load_home(home_at(home))
    query = {} if name is None else {"name": name}
    return control_answer(config, credentials, USE_PATH, query, knows="the quotas")


def _post(
    config: UpConfig, credentials: Credentials, path: str, body: Mapping[str, Any]
) -> dict[str, Any]:
    response = send(config, credentials, "POST", path, knows="the quotas", json=dict(body))
    if response.status_code == 200:
        return document(response)
    try:
        reason = str(document(response).get("error", response.text))
    except TerminalError:
        reason = response.text
    raise TerminalError(printable(reason))


def list_lines(quotas: Sequence[Mapping[str, Any]], currency: str) -> list[str]:
    """A table of quotas."""
    if not quotas:
        return ["No quotas. `hostelry quotas set NAME` sets one."]
    rows = [["NAME", "ACCOUNT", "COUNTS", "LIMITS", "REFUSED"]]
    for quota in quotas:
        limits = [f"{name} {_use_text(quota, name, currency)}" for name in _list_limits(quota)]
        refused = sum(use["refused"] for it in quota["counts"] for use in it["limits"].values())
        terms = [*limits, *_list_terms(quota)]
        rows.append(
            [quota["name"], quota["account"], _selector_text(quota), ", ".join(terms), str(refused)]
        )
    return columns(rows)


def quota_lines(quota: Mapping[str, Any], currency: str) -> list[str]:
    """A quota with the use of each of its counts."""
    lines = [_describe(quota, currency)]
    rows = [["LIMIT", "OF", "USED", "RESERVED", "ALLOWED", "REFUSED", "WARNED"]]
    for count in quota["counts"]:
        label = ", ".join(f"{name} {value}" for name, value in count["names"].items()) or "all"
        for name, use in count["limits"].items():
            numbers = [use[it] for it in ("used", "held", "limit")]
            shown = [_number(it, currency if name == "cost_per_day" else "") for it in numbers]
            rows.append([name, label, *shown, str(use["refused"]), str(use["warned"])])
    if len(rows) == 1:
        return [*lines, "  no use yet"]
    return lines + [f"  {line}" for line in columns(rows)]


def reached_lines(quotas: Iterable[Mapping[str, Any]], currency: str) -> list[str]:
    """A line for each limit that is reached now, for other commands."""
    lines = []
    for quota in quotas:
        for count in quota["counts"]:
            label = "".join(f" {name} {value}" for name, value in count["names"].items())
            for name, use in count["limits"].items():
                if use["is_reached"]:
                    unit = currency if name == "cost_per_day" else ""
                    effect = "only warns" if quota.get("warn_only") else "refuses calls"
                    lines.append(
                        f"quota {quota['name']}{label}: {name} of {_number(use['limit'], unit)} is "
                        f"reached, and {effect}"
                    )
    return lines


def _describe(quota: Mapping[str, Any], currency: str) -> str:
    limits = [
        f"{name} {_number(quota[name], currency if name == 'cost_per_day' else '')}"
        for name in _list_limits(quota)
    ]
    terms = ", ".join([*limits, *_list_terms(quota)])
    return f"quota {quota['name']}  account {quota['account']}  {_selector_text(quota)}: {terms}"


def _list_limits(quota: Mapping[str, Any]) -> list[str]:
    return [name for name in LIMITS if quota.get(name) is not None]


def _list_terms(quota: Mapping[str, Any]) -> list[str]:
    terms = [f"{name} {quota[name]}" for name in ("priority", "weight") if quota.get(name)]
    return [*terms, "warns only"] if quota.get("warn_only") else terms


def _selector_text(quota: Mapping[str, Any]) -> str:
    found = []
    for name in SELECTORS[1:]:
        value = quota.get(name)
        if value is not None:
            shown = name.replace("_", " ")
            found.append(f"each {shown}" if value == EACH else f"{shown} {value}")
    return ", ".join(found) or "all calls"


def _use_text(quota: Mapping[str, Any], name: str, currency: str) -> str:
    """The largest use of a limit among the quota's counts."""
    unit = currency if name == "cost_per_day" else ""
    uses = [it["limits"][name] for it in quota["counts"] if name in it["limits"]]
    most = max((it["used"] + it["held"] for it in uses), default=0)
    return f"{_number(most)}/{_number(quota[name], unit)}"


def _number(value: float, unit: str = "") -> str:
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f"{text} {unit}".strip()
