"""Data capture at the gateway: requests and answers, sampled, in memory and then in spool files."""
