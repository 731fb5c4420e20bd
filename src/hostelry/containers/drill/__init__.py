"""A model server made to be broken: what drills kill, stop, starve and crash."""
