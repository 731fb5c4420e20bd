"""Results of AI recommendation jobs: the price of tokens, and the order by the objective."""

import math
from collections.abc import Mapping

from hostelry.domain.recommendation_job import (
    BenchmarkStep,
    LlmMeasures,
    LlmObjective,
    RecommendationJob,
    RecommendationStatus,
)

SECONDS_PER_HOUR = 3_600
MILLION = 1_000_000
MEDIAN = "p50"


def get_cost_per_million_tokens(measures: LlmMeasures, price_per_hour: float) -> float | None:
    """The price of a million generated tokens at the best load. None without a token."""
    per_hour = measures.tokens_per_s * SECONDS_PER_HOUR
    return price_per_hour * MILLION / per_hour if per_hour > 0 else None


def list_llm_recommended(
    job: RecommendationJob, prices: Mapping[str, float | None]
) -> list[tuple[BenchmarkStep, LlmMeasures]]:
    """The completed steps with their measures, the best by the job's objective first.

    Steps whose value of the objective is not known are last.
    """
    assert job.search is not None, "only an AI recommendation job has an objective"
    objective = job.search.objective

    def rank(found: tuple[BenchmarkStep, LlmMeasures]) -> tuple[float, int]:
        step, measures = found
        if objective is LlmObjective.THROUGHPUT:
            return -measures.tokens_per_s, step.number
        if objective is LlmObjective.FIRST_TOKEN:
            return measures.first_token_ms.get(MEDIAN, math.inf), step.number
        price = prices.get(step.instance_type or "")
        cost = None if price is None else get_cost_per_million_tokens(measures, price)
        return math.inf if cost is None else cost, step.number

    measured = [
        (step, step.metrics.llm)
        for step in job.steps
        if step.status is RecommendationStatus.COMPLETED
        and step.metrics is not None
        and step.metrics.llm is not None
    ]
    return sorted(measured, key=rank)
