"""The image `echo:*`, which runs `servers/echo_server.py` by a rule in images.toml."""

import sys
from pathlib import Path

ECHO = Path(__file__).parent / "servers" / "echo_server.py"
ECHO_IMAGE = f"""
[[image]]
pattern = "echo:*"
command = ["{sys.executable}", "{ECHO}"]
[image.probe]
content_type = "application/json"
body = '{{"probe": true}}'
"""
