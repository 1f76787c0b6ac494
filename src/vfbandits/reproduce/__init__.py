"""The paper's figures, reproduced, each beside the paper's claims."""
