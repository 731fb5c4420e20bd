"""The web console: who may look, what each view shows, and what may be done from it."""
