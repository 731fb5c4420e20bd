"""AIPerf's files: its configuration, its requests, and the records that it leaves.

Source: AIPerf 0.13's documentation of the configuration file and of profile_export.jsonl.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hostelry.base.json import decode
from hostelry.domain.ai_benchmark_job import AiWorkload
from hostelry.jobs.ai_benchmarks.llm_load import TIMEOUT_S
from hostelry.loadtest.tally import LoadTally

KEY_VARIABLE = "HOSTELRY_AIPERF_KEY"  # the key of the proxy stays out of the configuration
FOLDER_VARIABLE = "HOSTELRY_AIPERF_FOLDER"
CONFIGURATION, REQUESTS, RESULTS = "aiperf.json", "requests.jsonl", "results"
# AIPerf loads a tokenizer in any case. This one has no words, because answers state their tokens.
TOKENIZER = "tokenizer"
TOKENIZER_FILES: Mapping[str, Any] = {
    "tokenizer.json": {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"},
    },
    "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "?"},
}
RECORDS, SUMMARY = "profile_export.jsonl", "profile_export_aiperf.json"
PER_S = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0, "sec": 1.0}


class AiperfRecordError(ValueError):
    """A record is not as AIPerf's documentation describes it."""


class _Value(msgspec.Struct, frozen=True):
    value: Any
    unit: str = ""


class _Metadata(msgspec.Struct, frozen=True):
    request_start_ns: int
    request_end_ns: int
    was_cancelled: bool = False


class _Error(msgspec.Struct, frozen=True):
    message: str = ""
    code: int | None = None
    type: str | None = None


class AiperfRecord(msgspec.Struct, frozen=True):
    """One request."""

    metadata: _Metadata
    metrics: Mapping[str, _Value] = msgspec.field(default_factory=dict)
    error: _Error | None = None


def build_configuration(
    workload: AiWorkload, model: str, url: str, *, is_chat: bool
) -> dict[str, Any]:
    """AIPerf's configuration file. Paths are below the folder in which AIPerf runs."""
    phase: dict[str, Any] = {"type": "concurrency", "concurrency": workload.concurrency}
    if workload.request_rate_per_s is not None:
        phase |= {"type": "constant", "rate": workload.request_rate_per_s}
    phase |= {"duration": workload.duration_s, "gracePeriod": TIMEOUT_S}
    if workload.request_count is not None:
        phase["requests"] = workload.request_count
    return {
        "schemaVersion": "2.0",
        "randomSeed": workload.seed % 2**32,
        "benchmark": {
            "model": model,
            "endpoint": {
                "url": url,
                "type": "chat" if is_chat else "completions",
                "apiKey": f"${{{KEY_VARIABLE}}}",
                "streaming": True,
                "timeout": TIMEOUT_S,
                "useServerTokenCount": True,
            },
            "dataset": {
                "type": "file",
                "path": REQUESTS,
                "format": "raw_payload",
                "sampling": "sequential",
            },
            "tokenizer": {
                "name": f"${{{FOLDER_VARIABLE}}}/{TOKENIZER}"
            },  # as a relative path it is a name
            "profiling": phase,
            "artifacts": {"dir": RESULTS, "summary": ["json"], "records": ["jsonl"]},
            "gpuTelemetry": {"enabled": False},
            "serverMetrics": {"enabled": False},
            "runtime": {"ui": "none"},
        },
    }


def read_records(lines: Iterable[bytes]) -> LoadTally:
    """The measures of the requests in AIPerf's records. Raises AiperfRecordError."""
    tally, first_ns, last_ns = LoadTally(), None, 0
    for line in lines:
        try:
            record = decode(line, AiperfRecord)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise AiperfRecordError(f"AIPerf's record {line[:200]!r} is invalid: {error}") from None
        began_ns = record.metadata.request_start_ns
        first_ns = began_ns if first_ns is None else min(first_ns, began_ns)
        last_ns = max(last_ns, record.metadata.request_end_ns)
        _add_record(tally, record)
    tally.measured_s = (last_ns - first_ns) / 1e9 if first_ns is not None else 0.0
    return tally


def _add_record(tally: LoadTally, record: AiperfRecord) -> None:
    if record.error is not None:
        code = record.error.code
        tally.fail(str(code or record.error.type or "error"), record.error.message)
        return
    if record.metadata.was_cancelled:
        tally.fail("unfinished", "under way when the time was over")
        return
    tally.num_ok += 1
    tally.latencies.append(_get_seconds(record, "request_latency"))
    if "time_to_first_token" in record.metrics:
        tally.first.append(_get_seconds(record, "time_to_first_token"))
    tally.gaps.extend(_list_gaps(record))
    tally.num_tokens += _get_count(record, "output_sequence_length")
    tally.num_prompt_tokens += _get_count(record, "input_sequence_length")


def _list_gaps(record: AiperfRecord) -> list[float]:
    """The seconds between the texts of an answer."""
    value = record.metrics.get("inter_chunk_latency")
    if value is None:
        return []
    try:
        return [float(it) / PER_S[value.unit] for it in value.value]
    except (KeyError, TypeError, ValueError):
        raise AiperfRecordError(f"AIPerf's inter_chunk_latency {value!r:.200} is invalid") from None


def _get_seconds(record: AiperfRecord, name: str) -> float:
    value = record.metrics.get(name)
    try:
        if value is not None:
            return float(value.value) / PER_S[value.unit]
    except (KeyError, TypeError, ValueError):
        pass
    raise AiperfRecordError(f"AIPerf's record has {name} as {value!r:.200}, which is invalid")


def _get_count(record: AiperfRecord, name: str) -> int:
    value = record.metrics.get(name)
    return int(value.value) if value is not None and isinstance(value.value, int | float) else 0
