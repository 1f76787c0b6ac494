"""The covariance form of a state on secret shares: theta and Lambda⁻¹."""
