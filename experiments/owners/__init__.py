"""Real data with natural owners, who join one at a time."""
