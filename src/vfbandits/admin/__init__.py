"""What an operator does to a federation."""
