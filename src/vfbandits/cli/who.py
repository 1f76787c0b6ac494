"""The user who runs a command, for the records of what was done."""

import getpass
import os
import socket


def who() -> str:
    """User and machine, such as ``ops@shop-1``; a number for a user without a name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not be in /etc/passwd
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
