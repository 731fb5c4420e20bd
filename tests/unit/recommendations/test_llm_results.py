"""The price of tokens, and the order of AI recommendations by the objective."""

from msgspec.structs import replace
from tests.cases import case, cases
from tests.unit.recommendations.jobs import JOB, completed, step

from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.domain.recommendation_job import LlmMeasures, LlmObjective, LlmSearch
from hostelry.recommendations.llm_results import (
    get_cost_per_million_tokens,
    list_llm_recommended,
)

MEASURES = LlmMeasures(
    concurrency=4,
    requests_per_s=2.0,
    tokens_per_s=100.0,
    latency_ms={"p50": 900.0},
    first_token_ms={"p50": 90.0},
    token_ms={"p50": 9.0},
)
SMALL = completed(1, "ml.a", llm=MEASURES)
FAST = completed(2, "ml.b", llm=replace(MEASURES, tokens_per_s=300.0, first_token_ms={"p50": 95.0}))
SILENT = completed(3, "ml.c", llm=replace(MEASURES, tokens_per_s=0.0, first_token_ms={}))


def test_the_cost_of_tokens() -> None:
    assert get_cost_per_million_tokens(MEASURES, 0.36) == 1.0
    assert get_cost_per_million_tokens(replace(MEASURES, tokens_per_s=0.0), 0.36) is None


@cases(
    "objective, prices, expected",
    case("by tokens per second", LlmObjective.THROUGHPUT, {}, [2, 1, 3]),
    case("by the first token", LlmObjective.FIRST_TOKEN, {}, [1, 2, 3]),
    case("by cost", LlmObjective.COST, {"ml.a": 1.0, "ml.b": 9.0, "ml.c": 1.0}, [1, 2, 3]),
    case("a price that is not known is last", LlmObjective.COST, {"ml.b": 9.0}, [2, 1, 3]),
)
def test_the_order_of_ai_recommendations(
    objective: LlmObjective, prices: dict[str, float | None], expected: list[int]
) -> None:
    search = LlmSearch(
        workload_name="short",
        workload=AiWorkload(prompt_tokens_mean=50.0),
        objective=objective,
        output_uri="s3://out",
    )
    job = replace(JOB, search=search, payload=None, steps=(SMALL, FAST, SILENT, step(4)))
    assert [it.number for it, _ in list_llm_recommended(job, prices)] == expected
