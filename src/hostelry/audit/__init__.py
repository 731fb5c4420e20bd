"""The audit trail: records of calls and acts, chained by hashes, in files or a database."""
