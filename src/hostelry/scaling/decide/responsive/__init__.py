"""The responsive policy: acts within seconds of a change, at a bounded rate of false alarms."""
