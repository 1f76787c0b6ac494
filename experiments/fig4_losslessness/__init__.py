"""The paper's Fig. 4: masked bandits decide as central ones do."""
