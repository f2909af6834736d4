"""What a terminal shows: tables and progress. Imports no other package of jobs."""
