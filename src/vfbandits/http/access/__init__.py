"""Who may call, how often, and over how many connections."""
