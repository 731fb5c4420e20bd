"""Aliases of KMS keys."""

from dataclasses import replace

from hostelry.api.context import CallContext, Params, Result
from hostelry.api.kms import lookup
from hostelry.api.kms.page import marked_page
from hostelry.base.errors import ServiceError, validation_error
from hostelry.domain.kms import KmsAlias

RESERVED = "alias/aws/"


def create_alias(context: CallContext, params: Params) -> Result:
    """CreateAlias."""
    name = checked_name(params["AliasName"])
    key = target(context, params)
    if context.state.kms_aliases.get(context.scope, name) is not None:
        arn = KmsAlias(
            scope=context.scope, name=name, key_id="", created_at=0.0, updated_at=0.0
        ).arn
        message = f"An alias with the name {arn} already exists"
        raise ServiceError("AlreadyExistsException", message)
    alias = KmsAlias(
        scope=context.scope,
        name=name,
        key_id=key,
        created_at=context.now,
        updated_at=context.now,
    )
    context.state.kms_aliases.put(context.scope, name, alias, expect=None)
    return {}


def update_alias(context: CallContext, params: Params) -> Result:
    """UpdateAlias: the alias names another key."""
    name = checked_name(params["AliasName"])
    found = lookup.found_alias(context, name)
    alias = replace(found.value, key_id=target(context, params), updated_at=context.now)
    context.state.kms_aliases.put(context.scope, name, alias, expect=found.version)
    return {}


def delete_alias(context: CallContext, params: Params) -> Result:
    """DeleteAlias."""
    name = checked_name(params["AliasName"])
    found = lookup.found_alias(context, name)
    context.state.kms_aliases.delete(context.scope, name, expect=found.version)
    return {}


def list_aliases(context: CallContext, params: Params) -> Result:
    """ListAliases, of one key or of all."""
    lookup.live_keys(context)  # makes the managed ones, and erases those of keys that are due
    wanted = None
    if params.get("KeyId"):
        wanted = lookup.own_key(context, params["KeyId"]).value.key_id
    aliases = [it.value for it in context.state.kms_aliases.list(context.scope)]
    rows = [(it.name, entry(it)) for it in aliases if wanted in (None, it.key_id)]
    return marked_page(context, "ListAliases", params, "Aliases", rows)


def entry(alias: KmsAlias) -> Result:
    """The alias as ListAliases answers it."""
    return {
        "AliasName": alias.name,
        "AliasArn": alias.arn,
        "TargetKeyId": alias.key_id,
        "CreationDate": alias.created_at,
        "LastUpdatedDate": alias.updated_at,
    }


def checked_name(name: str) -> str:
    """The alias's name; raises where it is not one that a customer may give."""
    if not name.startswith("alias/") or name == "alias/":
        raise validation_error("Invalid identifier")
    if name.startswith(RESERVED):
        message = f"{name} is reserved: names with the prefix {RESERVED} are AWS's own."
        raise ServiceError("NotAuthorizedException", message)
    return name


def target(context: CallContext, params: Params) -> str:
    """The id of the key that an alias shall name."""
    key = lookup.own_key(context, params["TargetKeyId"]).value
    if key.deletion_at is not None:
        raise ServiceError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
    return key.key_id
