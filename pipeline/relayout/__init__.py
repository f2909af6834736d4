"""A finished index laid out again: from its files, out of core, as its next generation."""
