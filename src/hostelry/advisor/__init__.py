"""Choice of the hosting option for models, by simulation with the platform's own rules."""
