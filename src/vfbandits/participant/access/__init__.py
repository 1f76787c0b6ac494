"""What leaves a passive participant: whom it answers about, how often, and the record of it."""
