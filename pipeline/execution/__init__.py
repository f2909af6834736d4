"""Tasks on threads of this process, in others of this machine, or on Ray; `ray` is the only file that imports Ray.

Imports no other folder of `pipeline`.
"""
