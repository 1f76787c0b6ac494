"""A leader with traces of its decisions and their phases."""

from collections.abc import Sequence

from vfbandits.campaign.machine import Ranking
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import ContextSource, Leader
from vfbandits.serving.served import Answered, Named, Result
from vfbandits.telemetry.tracer import Attributes, Tracer


class TracedLeader(Leader):
    """A leader with spans: "rank", and within it "contexts", "decide" and "log"."""

    def __init__(
        self,
        name: str,
        durable: DurableBandit,
        source: ContextSource,
        settings: CampaignSettings,
        *,
        tracer: Tracer,
    ) -> None:
        super().__init__(name, durable, source, settings)
        self._tracer = tracer

    async def decide(self, query: Query) -> Answered:
        """Decide in the task of the request: spans of a batch would belong to no request."""
        (result,) = await self.decide_many([query])
        if isinstance(result, Answered):
            return result
        raise result

    async def _rank_batch(self, batch: Sequence[Named], started: float) -> list[Result]:
        attributes: Attributes = {"campaign": self.name}
        if len(batch) == 1:
            ((event_id, query),) = batch
            attributes |= {"event_id": event_id, "n_arms": len(query.arms)}
        with self._tracer.span("rank", **attributes):
            return await super()._rank_batch(batch, started)

    async def _contexts(self, batch: Sequence[Named]) -> Sequence[Contexts]:
        with self._tracer.span("contexts") as span:
            contexts = await super()._contexts(batch)
            span.set(contributors=len(contexts[0].contributors))
            return contexts

    async def _decide(
        self, batch: Sequence[Named], contexts: Sequence[Contexts], started: float
    ) -> list[Ranking | Exception]:
        with self._tracer.span("decide", model_version=self.model.n_learnt):
            return await super()._decide(batch, contexts, started)

    async def _flush(self) -> None:
        with self._tracer.span("log"):
            await super()._flush()
