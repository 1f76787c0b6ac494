"""Logs, metrics, traces, and the supervision of background tasks."""
