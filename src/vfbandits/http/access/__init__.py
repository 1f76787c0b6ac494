"""Access control: callers, rate limits and connection limits."""
