"""Clock, ids, errors, logging and HTTP values. Imports nothing of ours."""
