"""Worlds to try bandits in, and what came of it.  No network."""
