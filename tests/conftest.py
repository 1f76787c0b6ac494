"""Settings of all tests.

By default examples are derived from the test itself, so that CI gives the same answer twice; with
``HYPOTHESIS_PROFILE=explore`` (``make test-long``) they are new each time, and more.
"""

import os

from hypothesis import settings

import vfbandits.transport.rpc  # noqa: F401  (before anything imports grpc: it sets its environment)

settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
