"""Our federation as a contestant: passive participants as processes, the active one here."""

import asyncio
import logging
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from benchmarks.loopback_tls import HOST
from vfbandits.campaign.settings import DEFAULT
from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.demo.rehearsal import Town
from vfbandits.pki.member import tls_files
from vfbandits.protocol.application import DecideRequest
from vfbandits.protocol.roster import Terms
from vfbandits.serving.active import ActiveService, query_of
from vfbandits.serving.build import build_active, open_campaigns
from vfbandits.settings.services import load_active
from vfbandits.telemetry.log import logger_for, start_logging
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc.server import RpcListener

N_USERS = 8
CONNECT_S = 60.0
NAMES = ("shop", "bank", "news", "post", "gym")


@dataclass(frozen=True, slots=True)
class Shape:
    """What is decided on, and how masked rows are added up; perhaps without access records."""

    dim: int
    n_arms: int
    mask: str = "dense"
    aggregation: str = "plain"
    layout: str = "per_arm"
    is_recorded: bool = True

    @property
    def terms(self) -> Terms:
        """The federation's terms."""
        arm_dim = 2 if self.layout == "outer" else 0
        return Terms(self.mask, self.aggregation, self.layout, arm_dim=arm_dim)


class LiveFederation:
    """Real processes over mutual TLS, without a journal; ``decide`` may be awaited many times."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._stack = AsyncExitStack()
        self._played = 0
        self.bytes_received = 0

    async def __aenter__(self) -> Self:
        """Start the processes and wait until all are connected."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._service, self._requests = await self._start(folder, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes."""
        await self._stack.__aexit__(kind, error, trace)

    async def decide(self) -> int:
        """One decision: contexts from every participant, then the bandit."""
        request = self._requests[self._played % N_USERS]
        self._played += 1
        reply = await self._service.decide(self._peer, request)
        if len(reply.contributors) < len(NAMES):
            raise ConnectionError("a decision went without a participant: not a fair time")
        self.bytes_received = reply.bytes_received
        return reply.index

    async def gather(self) -> None:
        """The contexts of one decision, without the decision: what the transport costs."""
        request = self._requests[self._played % N_USERS]
        self._played += 1
        (contexts,) = await self._service.rounds.contexts([query_of(request)], campaign=DEFAULT)
        self._service.rounds.release()
        self.bytes_received = contexts.bytes_received

    async def _start(
        self, folder: Path, stack: AsyncExitStack
    ) -> tuple[ActiveService, list[DecideRequest]]:
        shape = self.shape
        parts = np.array_split(np.arange(shape.dim), len(NAMES))
        widths = {name: len(part) for name, part in zip(NAMES, parts, strict=True)}
        town = Town.invent(widths, n_users=N_USERS, n_arms=shape.n_arms, seed=0)
        per_arm = shape.layout == "per_arm"
        features = {
            name: town.write_features(name, folder / f"{name}.parquet", per_arm=per_arm)
            for name in NAMES
        }
        plan = Plan(
            widths,
            shape.terms,
            features,
            journal=False,
            patience="deadline_s = 10.0\n",
        )
        local = LocalFederation(folder, plan, port=0)
        if not shape.is_recorded:
            local.program = "benchmarks.unrecorded"
        start_logging(level=logging.WARNING)
        settings, log = load_active(local.config("shop")), logger_for("shop", "active")
        active = build_active(settings, log)
        service = active.service
        campaigns = await open_campaigns(settings, active, log)
        stack.push_async_callback(campaigns.stop)
        listener = RpcListener(f"{HOST}:0", tls=tls_files(local.identity("shop")), calls=service)
        port = await service.start(listener)
        stack.push_async_callback(service.stop)
        for name in NAMES[1:]:
            config = local.config(name)
            config.write_text(config.read_text().replace(local.address, f"{HOST}:{port}"))
        stack.callback(local.stop_all)
        await asyncio.to_thread(local.start, *NAMES[1:])
        await _all_connected(service)
        member = local.roster.find("app")
        self._peer = Peer("app", "application", member.certificate if member else "")
        arm_features = np.ones((shape.n_arms, 2)).tobytes() if shape.layout == "outer" else b""
        requests = [DecideRequest(u, town.arms, arm_features=arm_features) for u in town.users]
        return service, requests


async def _all_connected(service: ActiveService) -> None:
    async with asyncio.timeout(CONNECT_S):
        while len(service.role.seats) < len(NAMES) - 1:  # noqa: ASYNC110  (a benchmark may poll)
            await asyncio.sleep(0.02)
