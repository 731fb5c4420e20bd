"""Question to the gateway whether a target exists: an invocation with this header.

Only a graph's copy may ask it so; no model gets the request.
"""

HEADER = "X-Hostelry-Graph-Proof"
EXISTS = "exists"  # its value
