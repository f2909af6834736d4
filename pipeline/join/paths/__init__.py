"""Workers of a join with storage of their own: their batches are copied to it once, and they read nothing else."""
