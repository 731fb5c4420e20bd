"""AWS's operations, by service and resource. An operation writes only desired state.

An operation is a function from a call's context and parameters to the members of its answer.
"""
