"""Object storage: work folders, outputs and indexes at URLs."""
