"""Acts over HTTP: planned in words, done once confirmed, and in control's audit log before.

Control itself notes its own acts, by the session that this console names, and says what they would
do before they are done.
"""

import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from hostelry.console.acts import ActPlan, ActRefusedError, act_plan
from hostelry.console.platform import ApiQuery, PlatformError, PlatformPort, ProcessCommand
from hostelry.console.sign_in import ConsoleSession
from hostelry.console.visits import ConsoleJson, SessionGate, json_body

LOG = logging.getLogger(__name__)
AUDIT = "/internal/audit"
BEGUN, ACCEPTED = "begun", "accepted"
MAX_STEPS = 12
MAX_CHARACTERS = 500  # of each text of an entry


class ConsoleActs:
    """Handlers of acts, and of the audit log."""

    def __init__(self, port: PlatformPort, gate: SessionGate) -> None:
        self._port = port
        self._gate = gate

    async def audit(self, request: Request) -> Response:
        """What was done on this platform, the newest first."""
        self._gate.reading(request)
        try:
            return ConsoleJson(await self._port.ask("control", AUDIT, {"limit": "100"}))
        except PlatformError as error:
            raise HTTPException(502, str(error)) from None

    async def plan(self, request: Request) -> Response:
        """What an act would do, in words and as calls; nothing is done. 409 where it cannot be."""
        session = self._gate.acting(request)
        plan = await _planned(request)
        would = []
        try:
            for call in plan.calls:
                if isinstance(call, ProcessCommand):
                    body = {**call.body, "who": _who(session), "dry_run": True}
                    would += _steps(await self._port.post(call.process, call.path, body))
        except PlatformError as error:
            raise HTTPException(409, str(error)) from None
        calls = [_shown(it) for it in plan.calls]
        shown = {"sentence": plan.sentence, "warning": plan.warning, "calls": calls}
        return ConsoleJson({**shown, "would": would})

    async def do(self, request: Request) -> Response:
        """Do an act; 409 with the reason where the platform refuses it.

        It is in the audit log before it is done, or is not done: 503.
        """
        session = self._gate.acting(request)
        plan = await _planned(request)
        is_noted = all(isinstance(it, ProcessCommand) for it in plan.calls)
        if not is_noted:
            try:
                await self._note(session, plan, BEGUN)
            except PlatformError as error:
                text = f"Nothing was done, since the audit log cannot be written: {error}"
                raise HTTPException(503, text) from None
        outcome = "not known: it was cut off"
        try:
            outcome = await self._done(session, plan)
        finally:
            if not is_noted:
                await self._note_end(session, plan, outcome)
        if outcome != ACCEPTED:
            raise HTTPException(409, outcome)
        return ConsoleJson({"outcome": outcome, "what": plan.sentence})

    async def _done(self, session: ConsoleSession, plan: ActPlan) -> str:
        try:
            for call in plan.calls:
                if isinstance(call, ApiQuery):
                    await self._port.call(call.service, call.operation, call.parameters)
                else:
                    body = {**call.body, "who": _who(session)}
                    await self._port.post(call.process, call.path, body)
        except PlatformError as error:
            return str(error)
        return ACCEPTED

    async def _note(self, session: ConsoleSession, plan: ActPlan, outcome: str) -> None:
        entry = {
            "who": _who(session),
            "act": plan.act,
            "target": plan.sentence[:MAX_CHARACTERS],
            "outcome": outcome[:MAX_CHARACTERS],
            "endpoint": plan.endpoint,
        }
        await self._port.post("control", AUDIT, entry)

    async def _note_end(self, session: ConsoleSession, plan: ActPlan, outcome: str) -> None:
        try:
            await self._note(session, plan, outcome)
        except PlatformError as error:
            LOG.warning("the audit log lacks an outcome: %s: %s: %s", plan.sentence, outcome, error)


def _who(session: ConsoleSession) -> str:
    return f"console session {session.id}"


def _steps(answer: Mapping[str, Any]) -> list[str]:
    """The summary and the steps of one of control's acts, as lines."""
    steps = [f"{it.get('copy') or 'a copy'}: {it['text']}" for it in answer.get("steps", ())]
    more = [f"and {len(steps) - MAX_STEPS} more"] if len(steps) > MAX_STEPS else []
    return [answer.get("summary", ""), *steps[:MAX_STEPS], *more]


async def _planned(request: Request) -> ActPlan:
    try:
        return act_plan(request.path_params["name"], await json_body(request))
    except ActRefusedError as error:
        raise HTTPException(400, str(error)) from None


def _shown(call: ApiQuery | ProcessCommand) -> dict[str, Any]:
    if isinstance(call, ApiQuery):
        return {"call": f"{call.service} {call.operation}", "parameters": call.parameters}
    return {"call": f"{call.process} {call.path}", "parameters": call.body}
