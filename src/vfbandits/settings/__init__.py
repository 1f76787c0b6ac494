"""Configuration files, read once into frozen objects."""
