"""Check that two participants agree on their federation; errors have both values."""

from vfbandits.core.noise import VectorNoise
from vfbandits.errors import HandshakeError, IdentityError
from vfbandits.protocol.messages import DTYPE, Hello, Welcome
from vfbandits.protocol.roster import STREAM_ROLES, Member, Roster
from vfbandits.protocol.version import SPOKEN, Versions

# The rounds of thirty years at a thousand a second: an active participant that lost its round
# catches up with one hello.  There are eight million such steps.
MAX_ROUND_STEP = 1 << 40
# On secret shares each number is a slot that was dealt: a participant that comes back has reserved
# a few that it did not use.  It may skip so many in one go, and this many in the
# long run.
MAX_SLOT_STEP = 64
SLOT_STEPS_PER_S = 1.0 / 15.0
# The most informative difference first.
ALWAYS = ("federation", "width", "layout", "mask", "aggregation", "protection", "users", "dtype")
OF_ONE_ROSTER = ("scaling", "dim", "roster")


def hello_of(
    member: Member,
    roster: Roster,
    *,
    epochs: tuple[int, ...],
    next_round: int,
    versions: Versions = SPOKEN,
    noise: VectorNoise | None = None,
) -> Hello:
    """The hello of ``member``, as it understands ``roster``."""
    return Hello(
        lowest_protocol=versions.lowest,
        highest_protocol=versions.highest,
        federation=roster.federation,
        roster=roster.digest,
        name=member.name,
        width=member.width,
        dim=roster.split.dim,
        layout=roster.terms.layout,
        mask=roster.terms.mask,
        aggregation=roster.terms.aggregation,
        scaling=member.scaling,
        dtype=DTYPE,
        epochs=epochs,
        next_round=next_round,
        noise=noise,
        users=roster.terms.users,
        protection=roster.terms.protection,
    )


def refuse_unless_allowed(
    roster: Roster, *, name: str, role: str, certificate: str, wanted: tuple[str, ...]
) -> Member:
    """The member that a certificate identifies; its role must be one of ``wanted``.

    Without TLS ``certificate`` is empty, and the name is trusted.
    """
    member = roster.whose(certificate) if certificate else roster.find(name)
    if member is None:
        raise IdentityError(f"wanted a member of the roster, got {name!r}, who is not in it")
    if certificate and member.name != name:
        raise IdentityError(f"wanted the certificate of {name!r}, got that of {member.name!r}")
    if member.role not in wanted or (role and role != member.role):
        raise IdentityError(
            f"wanted role {' or '.join(wanted)}, got {name!r}, whose role is {member.role!r} in "
            f"the roster and {role!r} in its certificate"
        )
    return member


def agree_on_version(hello: Hello, *, sender: str, spoken: Versions = SPOKEN) -> int:
    """The highest version of the protocol that both ends speak."""
    theirs = Versions(hello.lowest_protocol, hello.highest_protocol)
    version = spoken.common(theirs)
    if version is None:
        older = "the active participant" if spoken.highest < theirs.lowest else repr(sender)
        raise HandshakeError(
            f"protocol: the active participant speaks {spoken}, {sender!r} speaks {theirs}: "
            f"upgrade {older}"
        )
    return version


def refuse_unspoken(welcome: Welcome, *, name: str, spoken: Versions) -> None:
    """Refuse a welcome with a version of the protocol that ``name`` does not speak."""
    if welcome.protocol not in spoken:
        raise HandshakeError(
            f"protocol: {name!r} speaks {spoken}, the active participant chose {welcome.protocol}"
        )


def refuse_unless_agreed(hello: Hello, roster: Roster, *, sender: str, epoch: int) -> None:
    """Compare a hello with the roster in force at ``epoch``.

    A participant that was disconnected while masks and roster changed has shares of both epochs,
    and still names the first roster.  It is admitted: it holds the roster of this epoch beside the
    share of this epoch, and adopts it with the welcome.
    """
    if hello.name != sender:
        raise HandshakeError(f"wanted the hello of {sender!r}, got one that says {hello.name!r}")
    member = roster.find(sender)
    if member is None or member.role not in STREAM_ROLES:
        raise HandshakeError(
            f"wanted a passive participant of the roster, or its helper, got {sender!r}"
        )
    ours = hello_of(member, roster, epochs=(epoch,), next_round=hello.next_round)
    was_cut_off = epoch in hello.epochs and min(hello.epochs) < epoch
    for what in ALWAYS if was_cut_off else (*ALWAYS, *OF_ONE_ROSTER):
        wanted, came = getattr(ours, what), getattr(hello, what)
        if wanted != came:
            raise HandshakeError(
                f"{what}: the active participant has {wanted!r}, {sender!r} has {came!r}"
            )


def envelope_for(
    hello: Hello,
    *,
    epoch: int,
    has_share: bool,
    envelope: bytes | None,
    needs_envelope: bool,
) -> bytes:
    """What a newcomer gets with its welcome: a sealed share, or nothing if it needs none.

    ``has_share`` says whether something was learnt behind its share of this epoch.  If it has lost
    that share since, no other one fits what was learnt.
    """
    if epoch in hello.epochs:
        return b""
    theirs = f"{hello.name!r} has shares of {list(hello.epochs)}"
    if has_share:
        raise HandshakeError(
            f"epoch: the active participant learns behind masks of epoch {epoch}, {theirs} and "
            f"has had one of {epoch} before; restore it from a backup, or remove {hello.name!r} "
            "and add it again"
        )
    if not needs_envelope:
        return b""
    if envelope is None:
        raise HandshakeError(
            f"epoch: the active participant is at {epoch}, {theirs}, and no envelope for it came "
            "from the mask generator"
        )
    return envelope
