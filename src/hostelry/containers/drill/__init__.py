"""Model server that drills and tests kill, stop, starve and crash (image `hostelry/drill`)."""
