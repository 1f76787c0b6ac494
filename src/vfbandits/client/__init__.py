"""Typed clients of the HTTP interface."""
