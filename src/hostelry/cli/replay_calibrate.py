"""Calibration of `hostelry replay` by real requests to a running component."""

import json
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from hostelry.base.clock import SystemClock, monotonic_s
from hostelry.base.errors import TerminalError
from hostelry.cli.home_option import home_at, settled
from hostelry.home.aws_client import aws_client
from hostelry.sim.calibration import Measured, fitted
from hostelry.sim.service import ServiceModel

WORDS = (16, 64, 256, 512)
OUTPUT_TOKENS = 32
REPEATS = 5
BESIDE = (2, 4, 8)
WORDS_BESIDE = 64
READ_TIMEOUT_S = 120.0

Say = Callable[[str], None]


def calibrate(endpoint: str, component: str | None, home: Path | None, say: Say) -> ServiceModel:
    """The service model of a running component (None: of the endpoint's model) that streams.

    Sends about eighty requests, one to eight at a time. Raises TerminalError where one fails, or
    an answer is no chat stream of an LMI container.
    """
    config, credentials = settled(home_at(home))
    runtime = aws_client("sagemaker-runtime", config, credentials, read_timeout_s=READ_TIMEOUT_S)
    chats = ChatClient(runtime, endpoint, component)
    chats.one(WORDS[0], beside=1)  # warm-up, not measured
    found: list[Measured] = []
    for number in range(REPEATS):
        found += [chats.one(words, beside=1) for words in WORDS]
        say(f"one at a time, {number + 1} of {REPEATS}: {found[-1].last_s:.3f} s the longest")
    for beside in BESIDE:
        found += chats.together(beside)
        say(f"{beside} at a time: {found[-1].last_s:.3f} s each")
    day = datetime.fromtimestamp(SystemClock().now(), UTC).date().isoformat()
    where = endpoint if component is None else f"{endpoint}/{component}"
    return fitted(found, f"measured {day} on {where}, {len(found)} requests")


class ChatClient:
    """Client that streams chats whose prompts share no prefix, so that none is cached."""

    def __init__(self, runtime: Any, endpoint: str, component: str | None) -> None:
        self._runtime = runtime
        self._aim = {"EndpointName": endpoint}
        if component is not None:
            self._aim["InferenceComponentName"] = component
        self._source = random.Random(1)
        self._lock = threading.Lock()

    def one(self, words: int, beside: int) -> Measured:
        """Send one chat and time its tokens."""
        with self._lock:
            text = " ".join(str(self._source.randrange(10, 100)) for _ in range(words))
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began_s = monotonic_s()
        first_s, usage = None, None
        try:
            answer = self._runtime.invoke_endpoint_with_response_stream(
                **self._aim, ContentType="application/json", Body=json.dumps(body)
            )
            for chunk in _chunks(answer["Body"]):
                if first_s is None and chunk.get("choices"):
                    first_s = monotonic_s() - began_s
                usage = chunk.get("usage") or usage
        except (ClientError, BotoCoreError, ValueError) as error:
            raise TerminalError(f"a request to {self._aim} failed: {error}") from None
        if first_s is None or usage is None:
            raise TerminalError("the answer is no stream of chat completion chunks with usage")
        return Measured(
            input_tokens=usage["prompt_tokens"],
            output_tokens=usage["completion_tokens"],
            first_s=first_s,
            last_s=monotonic_s() - began_s,
            beside=beside,
        )

    def together(self, beside: int) -> list[Measured]:
        """Several at a time, in rounds; the first round, in which chats begin alone, is dropped."""
        with ThreadPoolExecutor(beside) as pool:
            rounds = [
                list(pool.map(lambda _: self.one(WORDS_BESIDE, beside), range(beside)))
                for _ in range(REPEATS)
            ]
        return [it for one in rounds[1:] for it in one]


def _chunks(events: Any) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of lines, with or without the prefix of server-sent events."""
    pending = b""
    for event in events:
        pending += event["PayloadPart"]["Bytes"]
        *lines, pending = pending.split(b"\n")
        for line in (it.strip().removeprefix(b"data:").strip() for it in lines):
            if line and line != b"[DONE]":
                yield json.loads(line)
