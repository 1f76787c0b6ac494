"""The paper's Fig. 5: what masks cost, by its model and measured."""
