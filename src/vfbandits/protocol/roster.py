"""Who is in a federation, and on what terms: the one document that everybody holds.

The organiser signs it.  Its digest is pinned by every handshake and bound into every sealed mask
share, so two participants that talk have the same document in hand.  A document of an earlier
version goes through ``UPCASTERS`` and keeps its digest: participants of several versions hold the
same document.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import TypeVar

from vfbandits.core.context import Split
from vfbandits.core.round import AGGREGATIONS, MASKS, refuse_combination, refuse_for_shares
from vfbandits.core.shares.released import LEARNS, learns_of, refuse_leak
from vfbandits.core.shares.terms import DEFAULT_ARMS, ShareTerms
from vfbandits.errors import ConfigError, SettingError
from vfbandits.versions import upcast

ACTIVE, PASSIVE, HELPER = "active", "passive", "helper"
APPLICATION, OPERATOR = "application", "operator"
ROLES = (ACTIVE, PASSIVE, HELPER, APPLICATION, OPERATOR)
# Those that keep a stream to the active participant, and those that something is sealed to.
STREAM_ROLES = (PASSIVE, HELPER)
SEALING_ROLES = (ACTIVE, *STREAM_ROLES)
LAYOUTS = ("per_arm", "outer", "disjoint")
CLEAR, PSEUDONYMS = "clear", "pseudonyms"
USERS = (CLEAR, PSEUDONYMS)
FORMAT = "vfbandits roster"
VERSION = 1
# What an earlier version's document becomes in the next one; without "format" and "version".
UPCASTERS: dict[int, Callable[[dict[str, object]], dict[str, object]]] = {}
MAX_NAME_LENGTH = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Member:
    """One participant, or a program that may talk to the active participant.

    Attributes
    ----------
    name, role
        Role is one of "active", "passive", "helper" (the second server of secret shares, if it has
        no features), "application" (asks for decisions and brings rewards) and "operator" (changes
        masks and members).
    certificate
        SHA-256 of the public key in its certificate, hex: a renewed certificate keeps it.
    width
        Features of its block, after scaling; 0 for programs and for a helper.
    sealing_key
        X25519 public key, hex, to which mask shares and dealt words are sealed and with which pads
        are agreed.
    scaling
        Digest of its fitted transformer; empty for none.
    """

    name: str
    role: str
    certificate: str
    width: int = 0
    sealing_key: str = ""
    scaling: str = ""

    def __post_init__(self) -> None:
        """Refuse a member that no certificate could identify."""
        if not is_name(self.name):
            raise ConfigError(
                f"a name has 1 to {MAX_NAME_LENGTH} letters, digits, '-', '_' or '.', "
                f"got {self.name[: 2 * MAX_NAME_LENGTH]!r}"
            )
        if self.role not in ROLES:
            raise ConfigError(
                f"the role of {self.name!r} must be one of {ROLES}, got {self.role!r}"
            )
        if (self.role in (ACTIVE, PASSIVE)) != (self.width > 0):
            wanted = "from 1" if self.role in (ACTIVE, PASSIVE) else "0"
            raise ConfigError(
                f"{self.role} {self.name!r} must have a width {wanted}, got {self.width}"
            )
        _refuse_unless_hex(self.certificate, 32, f"certificate of {self.name!r}")
        if self.role in SEALING_ROLES:
            _refuse_unless_hex(self.sealing_key, 32, f"sealing_key of {self.name!r}")


@dataclass(frozen=True, slots=True)
class SharesRules:
    """What protection "shares" needs beside the other terms: dealt words fit one set of them only.

    Attributes
    ----------
    helper
        The member that is the second server: a passive participant, or one with the role "helper",
        which has no features.
    release
        What the active participant learns of a decision.
    max_arms
        Most arms of one decision.
    window, decisions
        How many rewards, and how many decisions, a dealt window has slots for.
    ridge
        The prior's weight: participants divide their rows by its root.
    reads
        What the policy reads of each arm: "noise" (LinTS), "means" (LinGreedy) or "widths"
        (LinUCB).
    posterior_scale, beta
        The v of LinTS, and the multiple of the width that LinUCB adds; 0 for other policies.
    arm_bound
        Most that the length of a row of arm features may be, in layout "outer".
    accept_leak
        Passive participants whose rows may be read from what is released, in layouts "disjoint" and
        "outer".
    """

    helper: str
    release: str = "arm"
    reads: str = "noise"
    max_arms: int = DEFAULT_ARMS
    window: int = 16
    decisions: int = 16
    ridge: float = 1.0
    posterior_scale: float = 0.0
    beta: float = 0.0
    arm_bound: float = 1.0
    accept_leak: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unknown values; numbers are checked together with the widths."""
        for what in ("ridge", "posterior_scale", "beta", "arm_bound"):
            object.__setattr__(self, what, float(getattr(self, what)))  # one digest
        names = self.accept_leak
        if not isinstance(names, (list, tuple)) or not all(isinstance(one, str) for one in names):
            raise ConfigError(f"accept_leak must be a list of participants, got {names!r}"[:200])
        object.__setattr__(self, "accept_leak", tuple(names))
        if (self.release, self.reads) not in LEARNS:
            known = ", ".join(f"{release!r} with {reads!r}" for release, reads in LEARNS)
            raise ConfigError(
                f"release and reads must be one of {known}, got {self.release!r} with "
                f"{self.reads!r}"
            )
        for what in ("posterior_scale", "beta"):
            if self.release == "statistics" and getattr(self, what):
                raise ConfigError(
                    f"{what} is a term with release 'arm' only, and a setting of the model with "
                    f"release 'statistics', got {getattr(self, what):g}"
                )


@dataclass(frozen=True, slots=True)
class Terms:
    """How the members work together.

    ``users`` says how passive participants are asked for users: by "pseudonyms", one for each pair
    of participants, or by their ids in the "clear".  With ``shares`` contexts and all that is
    learnt are secret-shared (docs/shares.md).
    """

    mask: str = "blockwise"
    aggregation: str = "plain"
    layout: str = "per_arm"
    arm_dim: int = 0
    intercept: bool = False
    bound: float = 64.0
    users: str = CLEAR
    shares: SharesRules | None = None

    def __post_init__(self) -> None:
        """Refuse unknown values."""
        for what, value, known in (
            ("mask", self.mask, MASKS),
            ("aggregation", self.aggregation, AGGREGATIONS),
            ("layout", self.layout, LAYOUTS),
            ("users", self.users, USERS),
        ):
            if value not in known:
                raise ConfigError(f"{what} must be one of {', '.join(known)}, got {value!r}")
        if (self.layout == "outer") != (self.arm_dim > 0):
            raise ConfigError(
                f"arm_dim goes with layout 'outer', got {self.arm_dim} with {self.layout!r}"
            )
        object.__setattr__(self, "bound", float(self.bound))  # 64 and 64.0 have one digest
        if not 1.0 <= self.bound < 2.0**40:
            raise ConfigError(f"bound must be a number from 1 to 2^40, got {self.bound!r}")

    @property
    def learns(self) -> str:
        """What the active participant learns of a decision, in words.

        >>> Terms(shares=SharesRules(helper="bank")).learns
        'the arm of a decision'
        """
        rules = self.shares
        if rules is None:
            return "rotated contexts of a decision"
        learns = learns_of(rules.release, rules.reads, self.layout)
        if not rules.accept_leak:
            return learns
        return f"{learns}, from which rows of {', '.join(rules.accept_leak)} can be read"

    @property
    def protection(self) -> str:
        """Protection level: "mask" (each message is seen), "sum" (only their sum is) or "shares".

        >>> Terms(shares=SharesRules(helper="bank")).protection
        'shares'
        """
        if self.shares is not None:
            return "shares"
        return "sum" if self.aggregation == "secure" else "mask"


@dataclass(frozen=True, slots=True)
class Roster:
    """All members of a federation, its active participant first, and their terms.

    ``number`` counts the rosters of a federation from 1; a later one replaces an earlier one.
    ``generator_key`` is the mask generator's Ed25519 public key, hex; dense masks need it.
    ``session`` is a random number, 16 bytes in hex, that all rosters of one federation share and no
    other has: pads of secure sums and pseudonyms of users are bound to it, and with the digest all
    sealed shares.
    """

    federation: str
    number: int
    terms: Terms
    members: tuple[Member, ...]
    generator_key: str = ""
    session: str = ""
    # Set for a document of an earlier version; a roster that is made from this one has none.
    _read_digest: str = field(default="", init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a roster with which no round could be run."""
        if not is_name(self.federation):
            raise ConfigError(f"a federation's id is a name, got {self.federation[:128]!r}")
        if self.number < 1:
            raise ConfigError(f"rosters are numbered from 1, got {self.number}")
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ConfigError(f"names must differ, got {', '.join(names)}")
        for what in ("certificate", "sealing_key"):
            keys = [key for member in self.members if (key := getattr(member, what))]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                raise ConfigError(f"members must have a {what} of their own, got {twice} twice")
        roles = [member.role for member in self.members]
        if roles.count(ACTIVE) != 1 or roles[0] != ACTIVE:
            raise ConfigError(
                f"a roster has one active participant, named first, got {', '.join(roles)}"
            )
        try:
            refuse_combination(self.terms.mask, self.terms.aggregation, self.split)
            if self.terms.shares is not None:
                self._refuse_for_shares(self.terms.shares)
        except SettingError as error:
            raise ConfigError(str(error)) from error
        self._refuse_idle_helper()
        if self.terms.mask == "dense":
            if not self.passive:
                raise ConfigError("dense masks need a passive participant to hide, got none")
            _refuse_unless_hex(self.generator_key, 32, "generator_key, which dense masks need,")
        if self.terms.aggregation == "secure":
            _refuse_unless_hex(self.session, 16, "session, which secure sums need,")
        if self.terms.users == PSEUDONYMS:
            _refuse_unless_hex(self.session, 16, "session, which pseudonyms need,")

    def _refuse_idle_helper(self) -> None:
        """Refuse a member with the role "helper" that the terms do not name."""
        rules = self.terms.shares
        for member in self.members:
            if member.role != HELPER:
                continue
            if rules is None:
                raise ConfigError(
                    f"{member.name!r} has the role helper, which only protection 'shares' has, got "
                    f"{self.terms.protection!r}"
                )
            if member.name != rules.helper:
                raise ConfigError(
                    f"{member.name!r} has the role helper, so the terms must name it as helper, "
                    f"got {rules.helper!r}"
                )

    def _refuse_for_shares(self, rules: SharesRules) -> None:
        terms = self.terms
        refuse_for_shares(terms.mask, 1.0, self.split, rules.helper)
        if rules.helper not in (known := self.stream_members):
            raise SettingError(
                "protection 'shares' needs helper, a passive participant or a member with the role "
                f"helper, one of {', '.join(known)}, got {rules.helper!r}"
            )
        if terms.aggregation != "plain":
            raise SettingError(
                "protection 'shares' needs aggregation 'plain': rows are under masks of both "
                f"servers, got {terms.aggregation!r}"
            )
        if rules.reads == "covariance" and terms.layout == "per_arm":
            raise SettingError(
                "reads 'covariance' is not built for services in layout 'per_arm': LinTS runs with "
                "release 'arm', which draws it in parameter space"
            )
        refuse_leak(self.share_terms, self.split.names, rules.accept_leak)
        _refuse_unless_hex(self.generator_key, 32, "generator_key, which secret shares need,")

    @property
    def share_terms(self) -> ShareTerms:
        """What the dealer, both servers and the participants agree on under protection "shares"."""
        rules = self.terms.shares
        if rules is None:
            raise SettingError(f"wanted protection 'shares', got {self.terms.protection!r}")
        return ShareTerms(
            widths=self.split.widths,
            max_arms=rules.max_arms,
            ridge=rules.ridge,
            posterior_scale=rules.posterior_scale,
            bound=self.terms.bound,
            window=rules.window,
            decisions=rules.decisions,
            release=rules.release,
            reads=rules.reads,
            beta=rules.beta,
            layout=self.terms.layout,
            arm_dim=self.terms.arm_dim,
            arm_bound=rules.arm_bound,
            intercept=self.terms.intercept,
        )

    @property
    def split(self) -> Split:
        """Participants and their widths, the active one first."""
        return Split.of({m.name: m.width for m in self.members if m.width}, may_be_alone=True)

    @property
    def active(self) -> Member:
        """The participant that decides."""
        return self.members[0]

    @property
    def passive(self) -> tuple[Member, ...]:
        """The participants that add features only."""
        return tuple(m for m in self.members if m.role == PASSIVE)

    def terms_for(self, names: Collection[str]) -> Terms:
        """The terms with ``accept_leak`` of these members only: it comes and goes with a member."""
        rules = self.terms.shares
        if rules is None:
            return self.terms
        accepted = tuple(name for name in rules.accept_leak if name in names)
        return replace(self.terms, shares=replace(rules, accept_leak=accepted))

    def lasting_terms(self, after: "Roster") -> tuple[Terms, Terms]:
        """Terms of this and a later roster that a live federation keeps: they must be equal.

        What is accepted for a participant that is in both does not change.
        """
        names = {*self.split.names} & {*after.split.names}
        return self.terms_for(names), after.terms_for(names)

    @property
    def stream_members(self) -> tuple[str, ...]:
        """Those that keep a stream to the active participant; a helper may have no features."""
        return tuple(m.name for m in self.members if m.role in STREAM_ROLES)

    @property
    def dealt_to(self) -> tuple[str, ...]:
        """Those for whom the mask generator deals: participants, and a helper without features."""
        helpers = (member.name for member in self.members if member.role == HELPER)
        return (*self.split.names, *helpers)

    @property
    def rows_width(self) -> dict[str, int]:
        """Width of each participant's masked rows: dim behind dense masks, else its own.

        A word of 16 bytes, on secret shares, counts as two columns.
        """
        split = self.split
        if self.terms.shares is not None:
            return {name: 2 * width for name, width in split.items()}
        dense = self.terms.mask == "dense"
        return {name: split.dim if dense else width for name, width in split.items()}

    @property
    def digest(self) -> str:
        """SHA-256 of the document that was read or will be written, hex."""
        return self._read_digest or hashlib.sha256(self.to_bytes()).hexdigest()

    def find(self, name: str) -> Member | None:
        """The member of that name."""
        return next((member for member in self if member.name == name), None)

    def whose(self, certificate: str) -> Member | None:
        """The member with that certificate."""
        return next((member for member in self if member.certificate == certificate), None)

    def __iter__(self) -> Iterator[Member]:
        """Members in order."""
        return iter(self.members)

    def to_bytes(self) -> bytes:
        """The document: canonical JSON, the same bytes for the same roster."""
        top = {"format": FORMAT, "version": VERSION, **asdict(self)}
        del top["_read_digest"]
        if self.terms.users == CLEAR:
            # As in documents from before there were pseudonyms, which keep their digest.
            del top["terms"]["users"]
        if self.terms.shares is None:
            del top["terms"]["shares"]
        elif self.terms.layout == "per_arm":  # as before there were other layouts on shares
            del top["terms"]["shares"]["arm_bound"], top["terms"]["shares"]["accept_leak"]
        return json.dumps(top, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, document: bytes) -> "Roster":
        """Read a document; refuses what is not one."""
        try:
            top = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"a roster is a JSON document, got {len(document)} bytes") from error
        came = top.pop("format", None) if isinstance(top, dict) else type(top).__name__
        if came != FORMAT:
            raise ConfigError(f"wanted a {FORMAT!r}, got {str(came)[:64]!r}")
        version = top.pop("version", None)
        if isinstance(version, bool) or not isinstance(version, int):
            raise ConfigError(f"the version of a {FORMAT!r} is a number, got {version!r}"[:200])
        top = upcast(
            top,
            version,
            newest=VERSION,
            upcasters=UPCASTERS,
            what=f"a {FORMAT!r}",
            error=ConfigError,
        )
        members = top.pop("members", None)
        if not isinstance(members, list):
            raise ConfigError(f"a roster needs a list of members, got {type(members).__name__}")
        words = top.pop("terms", None)
        if isinstance(words, dict) and "shares" in words:
            words = {**words, "shares": _build(SharesRules, words["shares"])}
        terms = _build(Terms, words)
        parts = tuple(_build(Member, member) for member in members)
        roster = _build(cls, {**top, "terms": terms, "members": parts})
        if version != VERSION:
            digest = hashlib.sha256(document).hexdigest()
            object.__setattr__(roster, "_read_digest", digest)
        return roster


@lru_cache(maxsize=1_024)  # every ask names its campaign
def is_name(text: str) -> bool:
    """Whether ``text`` may name a member or a federation: safe in paths, logs and certificates."""
    plain = text.replace("-", "").replace("_", "").replace(".", "")
    return (
        0 < len(text) <= MAX_NAME_LENGTH
        and plain.isascii()
        and plain.isalnum()
        and text[0].isalnum()
    )


_PLAIN: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "str": str,
    "bool": bool,
    "float": (int, float),
}


def _build(kind: type[T], values: object) -> T:
    """A dataclass from a table that must have its fields, each of its type."""
    what = kind.__name__.lower()
    if not isinstance(values, dict):
        raise ConfigError(f"wanted a table for {what}, got {type(values).__name__}")
    known = {part.name: part.type for part in fields(kind) if part.init}  # type: ignore[arg-type]  # a dataclass
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"{what} has no {key[:64]!r}; known: {', '.join(known)}")
        name = getattr(known[key], "__name__", str(known[key]))
        wanted = _PLAIN.get(name)
        bad_bool = isinstance(value, bool) and known[key] is not bool
        if wanted is not None and (bad_bool or not isinstance(value, wanted)):
            raise ConfigError(f"{key} of {what} must be of type {name}, got {type(value).__name__}")
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{what} is incomplete: {error}") from error


def _refuse_unless_hex(text: str, size: int, what: str) -> None:
    try:
        right = len(text) == 2 * size and bytes.fromhex(text).hex() == text
    except ValueError:
        right = False
    if not right:
        raise ConfigError(f"{what} must be {size} bytes in lower-case hex")
