"""What happens to a decision from its request to its reward: pure, no I/O."""
