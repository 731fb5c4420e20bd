"""The data plane: routes, copy choice and connections to copies, for the gateway and for jobs."""
