"""Work queue and reconcilers: load, plan, apply, write status."""
