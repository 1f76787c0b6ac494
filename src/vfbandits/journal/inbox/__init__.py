"""Records of replicas that wait for the leader."""
