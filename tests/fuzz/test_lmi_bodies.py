"""Bodies of LMI and OpenAI requests: understood or refused, never a defect."""

from msgspec.structs import replace
from tests.fuzz.bodies import PATHS, mutated
from tests.fuzz.conftest import Cases
from tests.unit.containers.lmi.request.test_parse import CONTEXT
from tests.unit.containers.lmi.tiny import CODEC

from hostelry.containers.lmi.engine.backend import ModelFacts
from hostelry.containers.lmi.engine.messages import TO_ENGINE, Add, Unframer, frame
from hostelry.containers.lmi.refusal import Refusal, Surface
from hostelry.containers.lmi.request.body import parse_as, parse_invocation
from hostelry.containers.lmi.request.context import ParseContext
from hostelry.containers.lmi.request.invocation import Schema
from hostelry.containers.lmi.response.generation import prepare_now
from hostelry.containers.lmi.sessions import SessionRequest

FACTS = ModelFacts(vocab_size=259, max_model_len=64, eos_token_ids=(2,), dtype="fp32")
SCHEMAS = {PATHS[schema.value]: schema for schema in Schema}
OPENAI = replace(CONTEXT, dialect=Surface.OPENAI)
LEGACY = replace(CONTEXT, dialect=Surface.LEGACY)


def test_any_body_is_understood_or_refused(cases: Cases) -> None:
    """An accepted body reaches the engine's process as it was sent."""
    understood = 0
    longest = 0
    for random in cases(3_000):
        path, body = mutated(random)
        context: ParseContext = random.choice((CONTEXT, LEGACY))
        try:
            if path.startswith("/v1/"):
                invocation = parse_as(SCHEMAS[path], body, OPENAI)
            else:
                asked = parse_invocation("application/json", body, context)
                if isinstance(asked, SessionRequest):
                    continue
                invocation = asked
            sequences = prepare_now(invocation, CODEC, FACTS)
        except Refusal as refusal:
            longest = max(longest, len(refusal.message))
            continue
        understood += 1
        message = Add(tuple(each.request for each in sequences))
        (raw,) = Unframer().feed(frame(message))
        assert TO_ENGINE.decode(raw) == message
    assert understood > 100
    assert longest < 1000
