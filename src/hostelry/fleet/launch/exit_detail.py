"""Texts for the end of a process."""


def exit_detail(code: int | None) -> str:
    """How a process ended, in words."""
    if code is None:
        return "The model server's process is gone."
    if code < 0:
        return f"The model server was ended by signal {-code}."
    return f"The model server exited with code {code}."
