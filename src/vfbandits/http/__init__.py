"""The HTTP interface of the active participant."""
