"""Commands that make the next generation of an index from its present one alone, or remove earlier ones."""
