"""The real policies, placement and routing on a virtual clock, against a trace of arrivals."""
