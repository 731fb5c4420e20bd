"""The data plane: routes, admission, copy choice, proxying and streaming."""
