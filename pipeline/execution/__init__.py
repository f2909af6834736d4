"""Tasks on threads of this process or on a Ray cluster; `ray` is the only file that imports Ray.

Imports no other folder of `pipeline`.
"""
