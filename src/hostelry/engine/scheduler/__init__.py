"""PURE: the tokens of the next step under token, page and adapter budgets."""
