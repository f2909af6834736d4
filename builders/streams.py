"""Streams of random numbers: ``default_rng([seed, STREAM, ...])`` draws anew for each, whatever the seed.

A value is part of every index that was built with it and never changes.
"""

from __future__ import annotations

LEADERS = 0x1EAD
LEADER_GROUPS = 0x6209
LEADER_TREE = 0x73EE
CARVING = 0xCA7E
APPENDED_ORDER = 0xA99D
NAVIGATION_SAMPLE = 0x7A71
HASH_FUNCTIONS = 0x15A
LINKS = 0x714C
ASKED = 0xA53D
LEVELS = 0x1E7E
