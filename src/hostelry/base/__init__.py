"""Clock, ids, errors, logging and HTTP values; imports nothing of ours."""
