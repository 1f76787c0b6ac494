"""The wait for contexts as a span of its own."""

from contextlib import AbstractAsyncContextManager
from types import TracebackType

from vfbandits.serving.rounds import Contexts
from vfbandits.telemetry.tracer import Tracer


class TracedContexts:
    """Contexts of one decision; the span ends when they have come, not when they are given back."""

    def __init__(self, contexts: AbstractAsyncContextManager[Contexts], tracer: Tracer) -> None:
        self._contexts = contexts
        self._tracer = tracer

    async def __aenter__(self) -> Contexts:
        """Wait for them."""
        with self._tracer.span("contexts") as span:
            contexts = await self._contexts.__aenter__()
            span.set(contributors=len(contexts.contributors))
        return contexts

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Give them back."""
        return await self._contexts.__aexit__(kind, error, trace)
