"""Load tests of models through a gateway: requests, measures, and the search for a concurrency."""
