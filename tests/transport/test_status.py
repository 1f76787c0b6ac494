import asyncio

import grpc
import pytest

from vfbandits import errors
from vfbandits.transport.rpc.status import ERROR_KEY, INTERNAL, error_of, status_of

TOLD = [
    "ContextError", "ArmError", "RewardError", "UnknownDecisionError", "WireError",
    "HandshakeError", "ConfigError", "EnvelopeError", "IdentityError", "LinkError",
    "SettingError", "MaskError",
]  # fmt: skip
EVERY = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.VFBanditsError)
]
KEPT = [kind for kind in EVERY if not issubclass(kind, tuple(getattr(errors, n) for n in TOLD))]


def failure(status):
    metadata = grpc.aio.Metadata((ERROR_KEY, status.kind))
    return grpc.aio.AioRpcError(status.code, None, metadata, status.sentence)


@pytest.mark.parametrize("name", TOLD)
def test_an_error_about_the_peers_own_request_comes_back_as_it_is(name):
    kind = getattr(errors, name)
    again = error_of(failure(status_of(kind("wanted this, got that"))))
    assert type(again) is kind
    assert str(again) == "wanted this, got that"


@pytest.mark.parametrize("kind", [*KEPT, ValueError, ZeroDivisionError, asyncio.TimeoutError])
def test_of_any_other_error_the_peer_learns_nothing(kind):
    more = {"position": 3} if kind is errors.RecordError else {}
    status = status_of(kind("3.14 and a path /home/x", **more))
    assert (status.code, status.sentence) == (grpc.StatusCode.INTERNAL, INTERNAL)
    again = error_of(failure(status))
    assert type(again) is errors.LinkError
    assert "3.14" not in str(again)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.LinkError, "deadline"),
        (grpc.StatusCode.UNIMPLEMENTED, errors.LinkError, "does not take such calls"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.WireError, "too large"),
        (grpc.StatusCode.UNAVAILABLE, errors.LinkError, "said"),
    ],
)
def test_what_grpc_itself_says_becomes_an_error_of_ours(code, kind, says):
    error = error_of(grpc.aio.AioRpcError(code, None, grpc.aio.Metadata(), "said"))
    assert type(error) is kind
    assert says in str(error)


def test_a_long_sentence_is_cut():
    assert len(status_of(errors.ArmError("x" * 100_000)).sentence) == 1_000


def test_a_kind_of_error_that_we_do_not_know_is_a_link_error():
    metadata = grpc.aio.Metadata((ERROR_KEY, "SystemExit"))
    error = error_of(grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, None, metadata, "x"))
    assert type(error) is errors.LinkError
