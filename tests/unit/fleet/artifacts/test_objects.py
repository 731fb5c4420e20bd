import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hostelry.fleet.artifacts.objects import LateClient

NUM_THREADS = 8


class Client:
    def head_object(self) -> str:
        return "head"


def test_it_is_made_once_however_many_ask_first() -> None:
    made: list[Client] = []
    together = threading.Barrier(NUM_THREADS)

    def make() -> Client:
        made.append(Client())
        return made[-1]

    late = LateClient(make)
    assert made == []

    def ask(_: int) -> str:
        together.wait()
        return str(late.head_object())

    with ThreadPoolExecutor(NUM_THREADS) as threads:
        assert list(threads.map(ask, range(NUM_THREADS))) == ["head"] * NUM_THREADS
    assert len(made) == 1


def test_one_that_could_not_be_made_is_made_by_the_next_who_asks() -> None:
    answers: Iterator[OSError | Client] = iter([OSError("no descriptor is left"), Client()])

    def make() -> Client:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    late = LateClient(make)
    with pytest.raises(OSError, match="descriptor"):
        late.head_object()
    assert late.head_object() == "head"


def test_an_agent_answers_without_having_read_boto3() -> None:
    """It costs nearly half of an agent's start, which requests may be waiting for."""
    code = "import sys, hostelry.services.agent; print('boto3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
