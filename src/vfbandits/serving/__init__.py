"""The processes of the active participant."""
