"""``python -m hostelry.fleet.ray.end_instance NODE_HOME``: ends its processes and removes it."""

import shutil
import sys
from pathlib import Path

from hostelry.fleet.local.fleet import stop_everything
from hostelry.fleet.ray.instance_proxy import end_proxy
from hostelry.fleet.ray.node_home import NodeHome

GRACE_S = 3.0


def end_instance(home: NodeHome) -> None:
    """End agent, copies (after `GRACE_S`) and proxy, and remove the home. Idempotent."""
    stop_everything(home.instances, GRACE_S)
    end_proxy(home)
    shutil.rmtree(home.root, ignore_errors=True)


if __name__ == "__main__":
    end_instance(NodeHome(Path(sys.argv[1])))
