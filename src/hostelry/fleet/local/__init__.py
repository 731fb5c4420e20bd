"""The fleet of this machine: agents as processes."""
