"""How fast a round is: ours, the textbook's and the peers', in one run on one machine."""
