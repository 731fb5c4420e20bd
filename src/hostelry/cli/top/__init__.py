"""`hostelry top`: a live view of processes, instances, endpoints and components."""
