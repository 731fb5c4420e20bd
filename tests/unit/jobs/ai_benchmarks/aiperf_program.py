"""A program in AIPerf's place: reads its configuration, sends the requests, and writes its records.

Run as ``python aiperf_program.py ACT profile --config FILE``. ACT `send` sends each request once,
`fail` exits with code 1 at once, `break` after its results, `hang` sends one request and never
ends, and `guess` sends requests with another key.
"""

import http.client
import json
import os
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit


def send(endpoint: dict[str, str], body: bytes, key: str) -> tuple[int, str]:
    """Return the status and the text of the answer."""
    address = urlsplit(endpoint["url"])
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    connection.request("POST", "/v1/any", body, {"Authorization": f"Bearer {key}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def build_record(status: int, text: str, start_ns: int) -> dict[str, object]:
    """A record with the fields of AIPerf 0.13."""
    end_ns = time.time_ns()
    metadata = {"request_start_ns": start_ns, "request_end_ns": end_ns}
    if status != 200:
        return {"metadata": metadata, "metrics": {}, "error": {"code": status, "message": text}}
    events = [json.loads(it[6:]) for it in text.splitlines() if it.startswith("data: {")]
    usage = events[-1]["usage"]
    metrics = {
        "request_latency": {"value": (end_ns - start_ns) / 1e6, "unit": "ms"},
        "time_to_first_token": {"value": 1.5, "unit": "ms"},
        "inter_chunk_latency": {"value": [2.0, 4.0], "unit": "ms"},
        "output_sequence_length": {"value": usage["completion_tokens"], "unit": "tokens"},
        "input_sequence_length": {"value": usage["prompt_tokens"], "unit": "tokens"},
    }
    return {"metadata": metadata, "metrics": metrics, "error": None}


def main() -> None:
    """Act as the first argument says."""
    act, configuration = sys.argv[1], json.loads(Path(sys.argv[4]).read_bytes())
    if act == "fail":
        sys.exit("12:00:00 ERROR    Failed to load tokenizer\nTraceback ERROR other")
    benchmark = configuration["benchmark"]
    key, results = os.environ["HOSTELRY_AIPERF_KEY"], Path(benchmark["artifacts"]["dir"])
    bodies = Path(benchmark["dataset"]["path"]).read_bytes().splitlines()
    if act == "hang":
        bodies[0] = json.dumps({"pid": os.getpid(), "messages": [{"content": "hi"}]}).encode()
    if act == "guess":
        key = "another key"
    records = []
    for body in bodies[: benchmark["profiling"].get("requests")]:
        start_ns = time.time_ns()
        status, text = send(benchmark["endpoint"], body, key)
        records.append(build_record(status, text, start_ns))
        if act == "hang":
            time.sleep(600)
    results.mkdir()
    (results / "profile_export_aiperf.json").write_text(json.dumps({"by": "AIPerf"}))
    lines = [json.dumps(it) for it in records]
    (results / "profile_export.jsonl").write_text("\n".join(lines))
    if act == "break":
        sys.exit("12:00:00 ERROR    A worker is gone")


if __name__ == "__main__":
    main()
