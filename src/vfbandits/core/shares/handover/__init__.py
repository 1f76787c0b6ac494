"""How a state on secret shares goes on under new secrets, and with other participants."""
