"""What the dashboard shows: counted as it happens, in bounded memory."""
