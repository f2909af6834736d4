"""What every command that searches needs: open an index, choose an I/O engine, filter, turn answers into tables."""
