"""`hostelry accounts` and `hostelry users`."""

from typing import Annotated, Any

import typer

from hostelry.cli import completion as names
from hostelry.cli.accounts.requests import (
    AccountOption,
    AnyAccountOption,
    YesOption,
    choose_accounts,
    confirm,
    day_text,
    list_accounts,
    list_keys,
    perform,
    print_made,
)
from hostelry.cli.home_option import HomeOption, JsonOption, print_json
from hostelry.cli.status_text import columns

AccountArgument = Annotated[
    str, typer.Argument(help="Id or name of the account.", autocompletion=names.accounts)
]
UserArgument = Annotated[str, typer.Argument(help="Name of the user.", autocompletion=names.users)]
PolicyHelp = "ARN or name of a managed policy, for example AmazonSageMakerFullAccess."
accounts = typer.Typer(
    help="Accounts, each with separate names, keys and data.", no_args_is_help=True
)
users = typer.Typer(help="Users of accounts, and their policies.", no_args_is_help=True)


@accounts.callback()
def _accounts() -> None:
    """Accounts."""


@users.callback()
def _users() -> None:
    """Users."""


@accounts.command("create")
def create_account(
    name: Annotated[str, typer.Argument(help="Unique name of the account.")],
    account_id: Annotated[
        str, typer.Option("--id", help="Id of 12 digits. Default: a random id.")
    ] = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create an account, and print a key of its root, which may do everything in the account.

    Example: hostelry accounts create team-a
    """
    made = perform(home, "create-account", name=name, account=account_id)
    print_made({**made, "user": ""}, as_json=as_json)


@accounts.command("list")
def list_all_accounts(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the accounts.

    Example: hostelry accounts list
    """
    found = list_accounts(home)
    if as_json:
        print_json({"accounts": found})
        return
    rows = [["ACCOUNT", "NAME", "STATE", "CREATED", "USERS", "KEYS"]]
    for one in found:
        first = one.get("is_first", False)
        state = "first" if first else "closed" if one["is_closed"] else "open"
        num_keys = sum(1 for _ in list_keys(one)) + first
        made_on = day_text(one.get("created_at"))
        rows.append(
            [one["id"], one["name"] or "-", state, made_on, str(len(one["users"])), str(num_keys)]
        )
    typer.echo("\n".join(columns(rows)))


@accounts.command("rename")
def rename_account(
    account: AccountArgument,
    name: Annotated[str, typer.Argument(help="New name.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give an account another name. Its id stays.

    Example: hostelry accounts rename team-a team-b
    """
    done = perform(home, "rename-account", account=account, name=name)
    _report(done, f"Account {done['account']} has the name {done['name']}.", as_json=as_json)


@accounts.command("close")
def close_account(
    account: AccountArgument, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Refuse all keys of an account. Its data stays, and its copies keep running.

    Example: hostelry accounts close team-a
    """
    done = perform(home, "close-account", account=account)
    _report(done, f"Account {done['account']} is closed.", as_json=as_json)


@accounts.command("open")
def open_account(
    account: AccountArgument, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Accept the keys of a closed account again.

    Example: hostelry accounts open team-a
    """
    done = perform(home, "open-account", account=account)
    _report(done, f"Account {done['account']} is open.", as_json=as_json)


@accounts.command("delete")
def delete_account(
    account: AccountArgument,
    yes: YesOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a closed account that has no resources left, with its users, roles and policies.

    Exit code 1 if the account is open or has resources. The message names them.

    Example: hostelry accounts delete team-a --yes
    """
    confirm(f"Delete account {account} with its users and keys?", yes=yes)
    done = perform(home, "delete-account", account=account)
    _report(done, f"Account {done['account']} is deleted.", as_json=as_json)


@users.command("create")
def create_user(
    name: Annotated[str, typer.Argument(help="Name of the new user.")],
    policy: Annotated[str, typer.Option(help=PolicyHelp)] = "",
    account: AccountOption = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a user. Without a policy it may do nothing. `hostelry keys create` makes its keys.

    Example: hostelry users create ada --policy AmazonSageMakerReadOnly
    """
    done = perform(home, "create-user", user=name, policy=policy, account=account)
    text = f"User {done['user']} of account {done['account']} is created."
    _report(done, text, as_json=as_json)


@users.command("list")
def list_users(
    account: AnyAccountOption = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List users with their policies.

    Example: hostelry users list --account team-a
    """
    chosen = choose_accounts(list_accounts(home), account)
    found = [{"account": one["id"], **user} for one in chosen for user in one["users"]]
    if as_json:
        print_json({"users": found})
        return
    if not found:
        typer.echo("There is no user. `hostelry users create` makes one.")
        return
    rows = [["USER", "ACCOUNT", "CREATED", "KEYS", "POLICIES"]]
    for user in found:
        policies = ", ".join(it.rpartition("/")[2] for it in user["policies"]) or "-"
        made_on = day_text(user["created_at"])
        rows.append([user["name"], user["account"], made_on, str(len(user["keys"])), policies])
    typer.echo("\n".join(columns(rows)))


@users.command("attach")
def attach_policy(
    name: UserArgument,
    policy: Annotated[str, typer.Argument(help=PolicyHelp)],
    detach: Annotated[bool, typer.Option("--detach", help="Detach the policy instead.")] = False,
    account: AccountOption = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Attach a managed policy to a user, or detach it.

    Example: hostelry users attach ada AmazonSageMakerFullAccess
    """
    act = "detach-policy" if detach else "attach-policy"
    done = perform(home, act, user=name, policy=policy, account=account)
    what = "detached from" if detach else "attached to"
    _report(done, f"{done['policy']} is {what} user {done['user']}.", as_json=as_json)


@users.command("delete")
def delete_user(
    name: UserArgument,
    yes: YesOption = False,
    account: AccountOption = "",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a user with its keys, policies and sessions.

    Example: hostelry users delete ada --yes
    """
    confirm(f"Delete user {name} with its keys?", yes=yes)
    done = perform(home, "delete-user", user=name, account=account)
    text = f"User {done['user']} of account {done['account']} is deleted."
    _report(done, text, as_json=as_json)


def _report(done: dict[str, Any], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        typer.echo(text)
