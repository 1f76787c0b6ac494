"""Journals and snapshots: the state that survives a restart."""
