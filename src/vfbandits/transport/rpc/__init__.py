"""gRPC over mutual TLS 1.3.

gRPC for Python has no setting for a least version of TLS, but its core takes the cipher suites of
TLS 1.2 from the environment, once, when it is imported.  Those named here need an RSA certificate
and ours are ECDSA, so only TLS 1.3, whose suites are not settable, finds a common one.

The core also prints to the standard error, unasked, what our own errors say better.
"""

import os
import sys
from typing import Final

SUITES_VARIABLE: Final = "GRPC_SSL_CIPHER_SUITES"
SUITES: Final = "ECDHE-RSA-AES256-GCM-SHA384"
TOO_LATE: Final = "grpc" in sys.modules and os.environ.get(SUITES_VARIABLE) != SUITES

os.environ[SUITES_VARIABLE] = SUITES
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# With one message in flight the core's older poller passes it on sooner.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
