"""The join name of a node proxy: what a host without a certificate may ask for."""

from collections import deque
from collections.abc import Callable

import httpx

from hostelry.base.clock import monotonic_s
from hostelry.base.key_guard import INTERNAL_KEY_HEADER
from hostelry.base.peer_http import peer_client
from hostelry.base.tls import TlsFolder
from hostelry.cluster.http_front import Answer, FrontRequest

AUTHORITY_PATH, JOIN_PATH = "/internal/authority", "/internal/join"
CALL_S = 10.0
MAX_EACH, MAX_ALL = 20, 600  # attempts within PERIOD_S, of one address and of all
PERIOD_S = 60.0


class JoinDesk:
    """Shows the cluster's authorities, and passes requests to join on to control."""

    def __init__(
        self,
        folder: TlsFolder,
        control_url: str,
        internal_key: str,
        now_s: Callable[[], float] = monotonic_s,
    ) -> None:
        self._folder = folder
        self._control_url = control_url
        self._headers = {INTERNAL_KEY_HEADER: internal_key}
        self._now_s = now_s
        self._attempts: deque[tuple[float, str]] = deque()

    async def answer(self, request: FrontRequest) -> Answer:
        """The authorities, or control's answer."""
        if (request.method, request.path) == ("GET", AUTHORITY_PATH):
            return 200, self._folder.trusted.read_bytes()
        if (request.method, request.path) != ("POST", JOIN_PATH):
            return 404, b'{"reason": "there is nothing here but joining"}'
        if not self._may_try(request.address):
            return 429, b'{"reason": "too many attempts; wait a minute"}'
        try:
            async with peer_client(self._control_url) as http:
                answer = await http.post(
                    JOIN_PATH, content=request.body, headers=self._headers, timeout=CALL_S
                )
        except httpx.HTTPError:
            return 503, b'{"reason": "control does not answer; try again"}'
        return answer.status_code, answer.content

    def _may_try(self, address: str) -> bool:
        now = self._now_s()
        while self._attempts and self._attempts[0][0] <= now - PERIOD_S:
            self._attempts.popleft()
        of_address = sum(it == address for _, it in self._attempts)
        if of_address >= MAX_EACH or len(self._attempts) >= MAX_ALL:
            return False
        self._attempts.append((now, address))
        return True
