"""Figures of the paper: a folder each, run by ``vfb reproduce``."""
