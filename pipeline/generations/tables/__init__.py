"""Hash tables opened, and written anew from the chains of others and from vectors that are hashed.

Imports `pipeline.generations`, `pipeline.kinds` and the floors below.
"""
