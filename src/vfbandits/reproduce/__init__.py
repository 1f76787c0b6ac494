"""The paper's figures, made again, each beside what the paper says of it."""
