"""`hostelry cells`: whole platforms behind a router, and endpoints moved from one to another."""
