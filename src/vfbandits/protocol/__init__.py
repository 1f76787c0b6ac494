"""What participants say to each other: pure state machines, one event in, instructions out."""
