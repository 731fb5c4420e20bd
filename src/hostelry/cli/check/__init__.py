"""`hostelry check`: a program or notebook run under exec, with a verdict by cell."""
