"""`hostelry cells`: several platforms behind a router, and moves of endpoints between them."""
