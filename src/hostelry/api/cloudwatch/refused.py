"""Operations of CloudWatch that are not served, and what to use instead."""

from collections.abc import Mapping

from hostelry.metrics.query.math_functions import BAND_ADVICE

_NO_BAND = f"there is no anomaly detection here; {BAND_ADVICE}"
_NO_IMAGE = "graphs are not drawn here. GetMetricData has their values"
_NO_RULES = "Contributor Insights is not here. GetMetricData answers SELECT ... GROUP BY"
_NO_STREAMS = (
    "metrics are not streamed. The gateway's /metrics has them for Prometheus, and OTEL_EXPORTER_*"
    " sends them to a collector"
)
REFUSED: Mapping[str, str] = {
    "PutAnomalyDetector": _NO_BAND,
    "DescribeAnomalyDetectors": _NO_BAND,
    "DeleteAnomalyDetector": _NO_BAND,
    "GetMetricWidgetImage": _NO_IMAGE,
    "PutInsightRule": _NO_RULES,
    "DescribeInsightRules": _NO_RULES,
    "GetInsightRuleReport": _NO_RULES,
    "PutMetricStream": _NO_STREAMS,
    "ListMetricStreams": _NO_STREAMS,
}
