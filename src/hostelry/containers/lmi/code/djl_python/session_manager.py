"""Sessions whose state a handler keeps in files."""

import os
import pickle
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hostelry.base.clock import Clock, SystemClock

EXPIRATION_S = 1200
DEADLINE_KEY = ".expiration_ts"


class Session:
    """One session's values and arrays, each a file in its folder."""

    def __init__(
        self, session_id: str, session_root: str, expiration_ts: float | None = None
    ) -> None:
        self.session_id = session_id
        self.files_path = str(Path(session_root) / session_id)
        self.expiration_ts = expiration_ts or self.get(DEADLINE_KEY)

    def put(self, key: str, value: Any) -> None:
        """Keep `value` under `key`."""
        self._path(key).write_bytes(pickle.dumps(value))

    def get(self, key: str, d: Any = None) -> Any:
        """The value under `key`, else `d`."""
        path = self._path(key)
        return pickle.loads(path.read_bytes()) if path.is_file() else d

    def get_as_numpy(self, key: str, shape: Any, dtype: Any = None, create: bool = False) -> Any:
        """An array that lives in a file."""
        import numpy as np

        path, kind = self._path(key), dtype or np.float32
        if create:
            return np.memmap(path, dtype=kind, mode="w+", shape=shape)
        return np.memmap(path, dtype=kind, mode="r+", shape=shape)

    def remove(self) -> bool:
        """Remove the session's files. Raises ValueError if it has no files."""
        if not Path(self.files_path).exists():
            raise ValueError(f"session directory does not exist: {self.session_id}")
        shutil.rmtree(self.files_path)
        return True

    def _path(self, key: str) -> Path:
        return Path(self.files_path, key.replace("/", "-"))


class SessionManager:
    """The sessions of one handler, in the folder that its process may write."""

    def __init__(self, properties: Mapping[str, Any], clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self.expiration = int(properties.get("sessions_expiration", EXPIRATION_S))
        self.sessions_path = str(Path(tempfile.gettempdir(), "djl_sessions"))
        os.makedirs(self.sessions_path, exist_ok=True)
        self.sessions = {
            name: Session(name, self.sessions_path) for name in os.listdir(self.sessions_path)
        }

    def create_session(self) -> Session:
        """A new session."""
        self._close_expired()
        expires_at = self._clock.now() + self.expiration
        session = Session(str(uuid.uuid4()), self.sessions_path, expires_at)
        os.makedirs(session.files_path)
        session.put(DEADLINE_KEY, expires_at)
        self.sessions[session.session_id] = session
        return session

    def get_session(self, session_id: str | None) -> Session | None:
        """An open session. None without an id, or if it is new or expired. Raises ValueError."""
        if not session_id or session_id == "NEW_SESSION":
            return None
        if session_id not in self.sessions:
            raise ValueError(f"session not found: {session_id}")
        session = self.sessions[session_id]
        return None if self._is_expired(session) else session

    def close_session(self, session_id: str) -> None:
        """End a session and remove its files. Raises ValueError."""
        if session_id not in self.sessions:
            raise ValueError(f"session not found: {session_id}")
        self.sessions.pop(session_id).remove()

    def _is_expired(self, session: Session) -> bool:
        return session.expiration_ts is None or self._clock.now() > session.expiration_ts

    def _close_expired(self) -> None:
        for session in list(self.sessions.values()):
            if self._is_expired(session):
                self.close_session(session.session_id)
