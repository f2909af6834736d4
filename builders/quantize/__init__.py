"""Product quantization, its optimized rotation, and scalar quantization.

Imports `builders.nearest`.
"""
