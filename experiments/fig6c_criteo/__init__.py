"""The paper's Fig. 6c: Criteo, in a simulator fitted to it and on the user's own copy."""
