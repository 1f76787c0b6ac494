"""Other libraries, each in its fastest configuration that does our work or the nearest to it.

These modules are imported by the worker in the peers' own environment and nowhere else.
"""
