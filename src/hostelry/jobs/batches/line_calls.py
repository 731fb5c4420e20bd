"""One line of a batch at a copy: sent, and its answer taken whole."""

from dataclasses import dataclass

from hostelry.base.errors import ServiceError
from hostelry.base.http import HttpRequest
from hostelry.dataplane.http.reply import TooLargeError, UpstreamError
from hostelry.dataplane.openai_error import error_response
from hostelry.domain.llm_batch import LlmBatch
from hostelry.gateway.handlers.completions import (
    MODEL_FAILED,
    NO_CAPACITY,
    TIMEOUT,
    Completions,
    no_answer,
)
from hostelry.jobs.rules.next_step import BUSY, Trouble, trouble_of_status

TROUBLES = {
    NO_CAPACITY: Trouble.NO_COPY,
    TIMEOUT: Trouble.TIMED_OUT,
    MODEL_FAILED: Trouble.MODEL_FAILED,
}


@dataclass(frozen=True, slots=True)
class LineAnswer:
    """The answer to a line; `trouble` is None where its status is 2xx."""

    status: int
    body: bytes
    trouble: Trouble | None


class LineCalls:
    """Sends the lines of all batches.

    Args:
        completions: finds a model's copies.
        max_answer_bytes: of one answer, which is held in memory.
    """

    def __init__(self, completions: Completions, max_answer_bytes: int) -> None:
        self._completions = completions
        self._max_answer_bytes = max_answer_bytes

    async def answer(self, batch: LlmBatch, model: str, body: bytes, id: str) -> LineAnswer:
        """A copy's answer, or the error in OpenAI's format that stands in for it.

        The batch is the tenant whose share of an engine the request counts against.
        """
        headers = {"content-type": "application/json", "x-hostelry-tenant": batch.id}
        request = HttpRequest("POST", batch.endpoint, "", headers, body)
        try:
            return await self._answer(request, batch, model, id)
        except ServiceError as error:
            trouble = TROUBLES.get(error.code, Trouble.MODEL_REFUSED)
            return LineAnswer(error.http_status, error_response(error, id).body, trouble)

    async def _answer(
        self, request: HttpRequest, batch: LlmBatch, model: str, id: str
    ) -> LineAnswer:
        admitted = await self._completions.admit(request, batch.scope, model, id)
        reply, measured = admitted.in_flight.reply, admitted.measured
        try:
            body = await reply.body(self._max_answer_bytes)
            measured.answered()
            if not 200 <= reply.status < 300:
                measured.refused_by_model(reply.status)
        except TooLargeError as error:
            raise ServiceError("answer_too_large", str(error), 502) from error
        except UpstreamError as error:
            measured.got_no_answer()
            raise no_answer(error) from error
        finally:
            admitted.in_flight.close()
            measured.end()
        # A copy that is busy takes it later: that is no failure of the request.
        trouble = Trouble.NO_COPY if reply.status == BUSY else trouble_of_status(reply.status)
        return LineAnswer(reply.status, body, trouble)
