"""The web console: its sign-in, its views and its acts."""
