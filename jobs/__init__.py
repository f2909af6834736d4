"""What a person or a scheduler runs: the command, job files, reports and exports."""
