"""One module a resource: operation(context, request) -> response; writes desired state only."""
