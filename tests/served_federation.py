"""The services of a whole federation in one process: real files, in memory or over gRPC and TLS."""

import asyncio
import contextlib

from vfbandits.participant.run import build_helper, build_passive
from vfbandits.pki.member import server_name, tls_files
from vfbandits.protocol.application import RewardRequest
from vfbandits.serving.build import build_active, listener_of, open_campaigns
from vfbandits.settings.services import load_active, load_helper, load_passive
from vfbandits.telemetry.log import logger_for
from vfbandits.transport.memory import MemoryNetwork
from vfbandits.transport.rpc.client import RpcDialer

WAIT_S = 60.0
BUILT = {"passive": (load_passive, build_passive), "helper": (load_helper, build_helper)}


class ServedFederation:
    """The services of ``LiveWorld.federation()``, started and stopped as often as a test likes."""

    def __init__(self, world, kind):
        self.world = world
        self.files = world.federation()
        self.kind = kind
        self.network = None
        self.active = None
        self.passive = {}

    def state(self, name):
        return self.files.folder / name / "state"

    async def start_active(self):
        name = self.files.roster.active.name
        settings = load_active(self.files.config(name))
        log = logger_for(name, "active")
        built = build_active(settings, log)
        self.active = built.service
        self.campaigns = await open_campaigns(settings, built, log)
        listener = listener_of(settings, self.active)
        if self.kind == "memory":
            listener = self.network = MemoryNetwork(name)
        await self.active.start(listener)
        self.campaigns.start()

    async def stop_active(self):
        await self.active.stop()
        await self.campaigns.stop()

    async def start(self, *names):
        for name in names:
            role = self.files.roster.find(name).role
            load, build = BUILT[role]
            service = build(load(self.files.config(name)), logger_for(name, role))
            if self.kind == "memory":
                service._link._dialer = _Dialer(self, name, role)  # noqa: SLF001
            self.passive[name] = (service, asyncio.create_task(service.run()))

    async def stop(self, *names):
        for name in names:
            service, running = self.passive.pop(name)
            service.stop()
            await running

    def dialer(self, name):
        """A way to the active participant for one that says what it likes."""
        if self.kind == "memory":
            return self.network.dialer(name)
        return RpcDialer(
            self.files.address,
            tls=tls_files(self.files.identity(name)),
            name=name,
            role="passive",
            server_name=server_name(self.files.roster),
        )

    async def decide_with(self, *names):
        """Decide and learn until exactly these passive participants take part."""
        wanted = {self.files.roster.active.name, *names}
        limit = asyncio.get_running_loop().time() + WAIT_S
        reply = None
        while asyncio.get_running_loop().time() < limit:
            user = self.world.users[0]
            reply = await self.active.choose(self.world.request(user))
            await self.active.learn(RewardRequest(reply.event_id, 1.0))
            if set(reply.contributors) == wanted:
                return reply
            await asyncio.sleep(0.02)
        raise AssertionError(f"wanted {sorted(wanted)}, got {reply}")

    async def close(self):
        await self.stop(*self.passive)
        if self.active is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self.stop_active()


class _Dialer:
    def __init__(self, served, name, role):
        self._served = served
        self._name = name
        self._role = role

    async def dial(self, *, timeout_s):
        dialer = self._served.network.dialer(self._name, role=self._role)
        return await dialer.dial(timeout_s=timeout_s)

    async def close(self):
        return None
