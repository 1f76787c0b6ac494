"""The paper's Fig. 6a and 6b: more participants, less regret."""
