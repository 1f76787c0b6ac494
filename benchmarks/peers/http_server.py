"""The server that people would write themselves: FastAPI, MABWiser, and SQLite.

``python -m benchmarks.peers.http_server database`` answers ``POST /v1/rank`` as ours does: it reads
a user and arms, looks the user's features up in memory, scores all arms by LinUCB, and commits the
decision before it answers.  One commit for each request, in the fastest mode of SQLite that loses
nothing when the power fails.  It knows neither keys nor limits nor metrics, and it learns nothing
while it is timed.  It prints its port, and serves until its input ends.
"""

import asyncio
import socket
import sqlite3
import sys
import uuid

import numpy as np
import uvicorn
import uvloop
from fastapi import FastAPI
from mabwiser.mab import MAB, LearningPolicy
from pydantic import BaseModel

HOST = "127.0.0.1"
DIM = 100
BACKLOG = 2_048
N_ROUNDS = 1_000


class RankRequest(BaseModel):
    """As ours has it, as far as it is used here."""

    user: str
    arms: list[str]
    event_id: str | None = None


class RankedArm(BaseModel):
    """An arm and its score."""

    arm: str
    score: float


class RankResponse(BaseModel):
    """Which arm to show."""

    event_id: str
    arm: str
    ranking: list[RankedArm]


class Server:
    """A model, a database, and one route."""

    def __init__(self, database: str) -> None:
        self._rng = np.random.default_rng(0)
        self._users: dict[str, np.ndarray] = {}
        self._model: MAB | None = None
        self._database = sqlite3.connect(database, isolation_level=None)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE decisions (event_id TEXT PRIMARY KEY, user TEXT, arm TEXT, context BLOB)"
        )

    async def rank(self, request: RankRequest) -> RankResponse:
        """Decide, and commit."""
        model = self._model or self._learn(request.arms)
        context = self._features(request.user)
        scores = model.predict_expectations(context)
        ranking = sorted(scores.items(), key=lambda one: one[1], reverse=True)
        event_id = request.event_id or uuid.uuid4().hex
        self._database.execute(  # commits by itself
            "INSERT INTO decisions VALUES (?, ?, ?, ?)",
            (event_id, request.user, ranking[0][0], context.tobytes()),
        )
        arms = [RankedArm(arm=arm, score=score) for arm, score in ranking]
        return RankResponse(event_id=event_id, arm=ranking[0][0], ranking=arms)

    def _features(self, user: str) -> np.ndarray:
        if user not in self._users:
            self._users[user] = self._rng.standard_normal((1, DIM)) / DIM**0.5
        return self._users[user]

    def _learn(self, arms: list[str]) -> MAB:
        """A model that has seen some rounds, made with the first request."""
        self._model = MAB(arms, LearningPolicy.LinUCB(alpha=1.0), seed=0)
        contexts = self._rng.standard_normal((N_ROUNDS, DIM)) / DIM**0.5
        chosen = [arms[number % len(arms)] for number in range(N_ROUNDS)]
        self._model.fit(chosen, self._rng.standard_normal(N_ROUNDS), contexts)
        return self._model


async def serve(database: str) -> None:
    """Serve until nobody listens any more."""
    app = FastAPI()
    app.post("/v1/rank")(Server(database).rank)
    server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning"))
    with socket.create_server((HOST, 0), backlog=BACKLOG) as listening:
        task = asyncio.create_task(server.serve([listening]))
        print(listening.getsockname()[1], flush=True)  # noqa: T201  (the other end reads it)
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await task


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
