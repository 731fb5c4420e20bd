"""Where instances live: Fleet, Agent and Launcher; the only code that starts processes."""
