"""Role, transport and store become one process."""
