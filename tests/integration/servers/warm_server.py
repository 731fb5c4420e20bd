"""A module that is imported before copies start, for tests of warm starts.

``main`` writes its environment into `told.json` in its working folder, obeys TASK, and stays:
``exit N`` ends with that code, ``signal N`` by that signal, ``child`` leaves a child in another
session, ``fork`` leaves a child that shares this memory.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PAUSE = "import time; time.sleep(600)"


def main() -> int:
    print("this is a copy", flush=True)
    scratch = Path("told.scratch")
    scratch.write_text(json.dumps({"environment": dict(os.environ), "cwd": str(Path.cwd())}))
    scratch.rename("told.json")
    task, _, code = os.environ.get("OPTION_TASK", "").partition(" ")
    if task == "exit":
        return int(code)
    if task == "signal":
        os.kill(os.getpid(), int(code))
    if task == "child":
        subprocess.Popen([sys.executable, "-c", PAUSE], start_new_session=True)
    if task == "fork" and os.fork() == 0:
        os.setsid()
    time.sleep(600)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
