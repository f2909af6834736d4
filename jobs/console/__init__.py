"""Tables and progress on a terminal. Imports no other package of jobs."""
