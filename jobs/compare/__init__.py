"""`indexmill compare`: several indexes measured side by side, in turns, with intervals and a gate for CI.

Imports `kinds`, `score`, `devices`, `console` and `choices`.
"""
