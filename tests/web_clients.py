"""Both clients under one roof: the one to be awaited looks here like the other."""

import asyncio
import functools

from vfbandits.client.async_client import AsyncClient
from vfbandits.client.client import Client


class Awaited:
    """An ``AsyncClient`` whose calls are awaited for the caller, in a loop of its own."""

    def __init__(self, *arguments, **settings):
        self.runner = asyncio.Runner()
        self.client = AsyncClient(*arguments, **settings)

    def __getattr__(self, name):
        method = getattr(self.client, name)

        @functools.wraps(method)
        def call(*arguments, **settings):
            return self.runner.run(method(*arguments, **settings))

        return call

    def __repr__(self):
        return repr(self.client)

    def __enter__(self):
        self.runner.run(self.client.__aenter__())
        return self

    def __exit__(self, *_):
        self.runner.run(self.client.__aexit__(*_))
        self.runner.close()


KINDS = {"sync": Client, "async": Awaited}
