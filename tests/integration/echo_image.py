"""The image `echo:*`: what `servers/echo_server.py` serves, as images.toml has it."""

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
