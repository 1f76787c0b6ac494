"""Data to try bandits on: readers of public files, and a world shaped like one of them."""
