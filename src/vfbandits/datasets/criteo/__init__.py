"""The Criteo display advertising data."""
