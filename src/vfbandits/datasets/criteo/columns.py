"""The 40 columns of Criteo's train file, by their usual names."""

LABEL = "label"
NUMBERS = tuple(f"I{i}" for i in range(1, 14))
CATEGORIES = tuple(f"C{i}" for i in range(1, 27))
COLUMNS = (LABEL, *NUMBERS, *CATEGORIES)
