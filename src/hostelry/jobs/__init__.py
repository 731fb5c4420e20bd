"""Work that outlives its request: queued inference and batch jobs, run against ready copies."""
