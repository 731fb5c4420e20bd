"""Principals: keys, users, roles and accounts, and the policies that bound them."""
