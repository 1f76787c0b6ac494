"""The command ``vfb``: parse, build settings, call."""
