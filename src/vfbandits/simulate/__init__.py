"""Simulated worlds for bandits, and the results.  No network."""
