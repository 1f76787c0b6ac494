"""Access control of a passive participant: about which users it answers, and how often."""
