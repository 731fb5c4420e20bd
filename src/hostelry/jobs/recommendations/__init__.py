"""Sends the loads of inference recommendations jobs, and measures them."""
