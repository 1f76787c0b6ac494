"""The processes of passive participants and of the mask generator."""
