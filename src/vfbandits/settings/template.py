"""A member's configuration file with comments, to be read and filled in by its owner."""

import json
import re
from collections.abc import Sequence

from vfbandits.core.shares.terms import MAX_REWARD
from vfbandits.protocol.identity import GENERATOR
from vfbandits.protocol.roster import (
    ACTIVE,
    APPLICATION,
    HELPER,
    OPERATOR,
    PASSIVE,
    Member,
    Roster,
)

FEATURES_FILE = "features.toml"  # the table [features] of an owner, before it has a whole file
_COMMENTS_FROM = 33
_FEATURES = re.compile(r"^(?:# )?\[features\]$.*", re.MULTILINE | re.DOTALL)


def config_text(
    member: Member, roster: Roster, *, address: str, roster_file: str, http: str = ""
) -> str:
    """TOML for one member.  An owner adds its features, and perhaps other settings of the model.

    ``http`` is the address of the HTTP interface, on loopback; without it that is a comment.
    """
    parts = [_head(member.name, member.role, roster, address, roster_file)]
    if member.role in (ACTIVE, PASSIVE):
        parts.append(_line('state = "state"', "mask shares, and all that must survive a restart"))
    if member.role == ACTIVE:
        if roster.terms.mask == "dense":
            parts.append(_line('envelopes = "envelopes"', "written by vfb masks deal"))
        parts += _dealt(roster)
        features = _commented(_features(member, roster) + _NAMES)
        interface = _http(http) if roster.terms.shares is None else _for_shares(_http(http))
        parts += [_ACTIVE.format(model=_model(roster)), interface, _OWN_FEATURES, features]
    if member.role == PASSIVE:
        access = _ACCESS + _STATUS + _NOISE + _RECONNECT
        parts += [*_dealt(roster), access, _features(member, roster)]
    if member.role == HELPER:
        state = _line('state = "state"', "all answers, which must survive a restart")
        dealt = _line('dealt = "dealt"', "secrets, written by vfb masks deal")
        status = _STATUS.replace("#\n", "\n", 1)
        parts += [state, dealt, status, _RECONNECT.rstrip("\n"), "\n"]
    return "".join(parts)


def _dealt(roster: Roster) -> list[str]:
    """The folder of dealt words, under protection "shares"."""
    if roster.terms.shares is None:
        return []
    return [_line('dealt = "dealt"', "secrets and windows, written by vfb masks deal")]


def _model(roster: Roster) -> str:
    """The policy, for which words were dealt under protection "shares"."""
    rules = roster.terms.shares
    if rules is None:
        policy = _line(
            'policy = "linucb"', "or lints, lingreedy, inverse_gap; its parameters follow"
        )
        return f"{policy}beta = 0.5\nridge = 1.0\n"
    names = {"noise": "lints", "means": "lingreedy", "widths": "linucb", "covariance": "linucb"}
    policy = _line(f'policy = "{names[rules.reads]}"', "set by the roster, as the next keys are")
    scale = f"posterior_scale = {rules.posterior_scale}\n" if rules.reads == "noise" else ""
    # With statistics the policy runs in the open, and its beta is no term.
    beta = f"beta = {rules.beta}\n" if (rules.release, rules.reads) == ("arm", "widths") else ""
    return f"{policy}{scale}{beta}ridge = {rules.ridge}\n"


def generator_text(name: str, roster: Roster, *, address: str, roster_file: str) -> str:
    """TOML for the mask generator: not a member, it deals offline, and may read the status."""
    return _head(name, GENERATOR, roster, address, roster_file)


def _head(name: str, role: str, roster: Roster, address: str, roster_file: str) -> str:
    """The first lines of every file."""
    lines = [
        f"# {name}, {role} in the federation {roster.federation}.  "
        "Paths are relative to this file.\n"
        f"# Before you start: vfb preflight --config {name}.toml\n\n",
        _line(f'name = "{name}"'),
        _line(f'role = "{role}"'),
        _line(f'address = "{address}"', _ADDRESS[role]),
        _line('identity = "identity"', f"folder of {name}.key, {name}.crt and authority.crt"),
        _line(f'roster = "{roster_file}"', "members and terms, signed by the organiser"),
    ]
    return "".join(lines)


def _line(setting: str, comment: str = "") -> str:
    if not comment:
        return f"{setting}\n"
    return f"{setting.ljust(_COMMENTS_FROM - 1)} # {comment}\n"


def _features(member: Member, roster: Roster) -> str:
    per_arm = roster.terms.layout == "per_arm"
    lines = [
        "[features]\n",
        _line('kind = "file"', _KINDS),
        _line(f'path = "{member.name}.parquet"', "or .csv, .csv.gz"),
        _line(f"key = {_KEYS[per_arm]}", f"{_NAMED[per_arm]}"),
    ]
    if member.scaling:
        lines.append(_line('scaling = "scaling.json"', f"of digest {member.scaling[:16]}…"))
    else:
        lines.append(_line("columns = []", f"names of the {member.width} columns"))
    return clipped("".join([*lines, _CLIP]), roster)


def clipped(features: str, roster: Roster) -> str:
    """The table [features] with the limit of the roster on the norm of rows, on secret shares."""
    if roster.terms.shares is None:
        return features
    limit = _line(f"clip_norm = {roster.terms.bound}", "longer rows are refused: the bound")
    return features.replace(_CLIP, limit)


def features_text(*, path: str, key: Sequence[str], scaling: str, digest: str) -> str:
    """The table [features] of an owner that has fitted a scaling on a file.

    >>> print(features_text(path="a.csv", key=["user"], scaling="scaling.json", digest="ab" * 32))
    [features]
    kind = "file"                    # or "sql" (url_env, table), "redis" (url_env, prefix)
    path = "a.csv"
    key = ["user"]
    scaling = "scaling.json"         # of digest abababababababab…
    # clip_norm = 10.0               # rows with a larger norm are scaled down to it
    <BLANKLINE>
    """
    lines = [
        "[features]\n",
        _line('kind = "file"', _KINDS),
        _line(f"path = {_quoted(path)}"),
        _line(f"key = [{', '.join(map(_quoted, key))}]"),
        _line(f"scaling = {_quoted(scaling)}", f"of digest {digest[:16]}…"),
        _CLIP,
    ]
    return "".join(lines)


def with_features(text: str, features: str) -> str:
    """A configuration file that ``config_text`` wrote, with the owner's table [features].

    >>> with_features("# [features]", 'kind = "sql"')
    'kind = "sql"'
    """
    return _FEATURES.sub(lambda _: features, text, count=1)


def _quoted(text: str) -> str:
    """A string in TOML, which has the syntax of JSON."""
    return json.dumps(text, ensure_ascii=False)


def _http(address: str) -> str:
    """The tables of the HTTP interface; as comments if there is no address."""
    if not address:
        return _HTTP
    lines = []
    for line in _HTTP.splitlines():
        word = line.removeprefix("# ")
        if word.startswith("address"):
            lines.append(f'address = "{address}"')
        else:
            lines.append(word if word.startswith(_HTTP_BASICS) else line)
    return "\n".join(lines) + "\n"


def _for_shares(text: str) -> str:
    """The same tables, without what protection "shares" refuses."""
    lines = [line for line in text.splitlines() if not line.startswith("# log_contexts")]
    return "\n".join(lines).replace("1e6", f"{MAX_REWARD:g} ").replace(" \n", "\n") + "\n"


def _commented(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


_KINDS = 'or "sql" (url_env, table), "redis" (url_env, prefix)'
_CLIP = _line("# clip_norm = 10.0", "rows with a larger norm are scaled down to it")
_KEYS = {True: '["user", "arm"]', False: '["user"]'}
_NAMED = {True: "columns with the user and the arm", False: "column with the user"}
_ADDRESS = {
    ACTIVE: "host:port to listen on",
    PASSIVE: "of the active participant",
    HELPER: "of the active participant",
    APPLICATION: "of the active participant",
    OPERATOR: "of the active participant",
    GENERATOR: "of the active participant",
}

_NAMES = """\
# Without a store, features come with each request: kind = "request" and their scaling, if by name.
"""

_ACTIVE = """\
journal = true                   # decisions and rewards survive a restart
# journal_target = "env:JOURNAL" # PostgreSQL URL in this variable, instead of a file in state
# journal_key = "journal.key"    # encryption at rest; create it with vfb journal keygen

[model]
{model}# discount = 1.0                 # below 1, old rewards lose weight
# floor = 0.0                    # fraction of decisions made at random
# seed = 0                       # seed of the policy's random draws
# max_pending = 100000           # pending decisions in memory; others stay in the journal

[patience]
deadline_s = 0.25                # features of a slower participant count as zeros
failures_to_open = 3             # consecutive failures until its circuit opens
ping_every_s = 0.5               # an answered ping closes the circuit
change_s = 30.0                  # timeout of a mask change

"""

_HTTP_BASICS = ("[http]", "keys", "[campaigns.default]", "reward_wait_s")
_HTTP = """\
# The HTTP API and the dashboard: docs/serving.md.
#
# [http]
# address = "0.0.0.0:8443"
# certificate = "http.crt"       # with private_key; optional on loopback
# private_key = "http.key"
# keys = "keys.json"             # API keys; create one with vfb keys create
# clients = "clients.crt"        # CA of client certificates, instead of keys or with them
# tls = "proxy"                  # instead of a certificate, if an ingress terminates TLS
# trusted_proxies = ["10.0.0.0/8"]
#
# The paths of Azure Personalizer: docs/personalizer.md.
#
# [http.personalizer]
# user = "user.id"               # the context feature that has the user's id
#
# [campaigns.default]
# mode = "learn"                 # or shadow, frozen
# holdback = 0.0                 # fraction of events that get the baseline
# reward_wait_s = 600.0
# default_reward = 0.0           # learnt if no reward arrives; learn_default = false: nothing
# aggregation = "earliest"       # or sum
# reward_min = -1e6              # rewards outside these bounds are refused
# reward_max = 1e6
# log_contexts = "chosen"        # or all: every arm's contexts, for vfb tune; or a fraction
# retain_days = 90               # older records leave the journal; without it they stay
#
# A policy that loses against the holdback is switched to the baseline:
#
# [campaigns.default.guardrail]
# enabled = true
# alpha = 0.05                   # probability of a false alarm, however long it is watched
# margin = 0.0                   # tolerated loss of reward per event
# min_events = 100               # settled events that each group needs before a verdict
"""
_OWN_FEATURES = """\
#
# Features of the active participant come with each request, or from a store:
#
"""

_ACCESS = """
# Limits on rows that leave: docs/operations.md.  Rows over a limit are declined, and recorded.
#
# [access]
# users_per_day = 10000            # users per day (UTC) that are answered about
# asks_per_user_per_day = 100
# rows_per_second = 50000
# allow = "users.txt"              # one user per line; only these are answered about
# campaigns = ["default"]          # of the active participant; others are declined
# consent = "agreed"               # a column of true and false, which is not a feature
# changed_after = "24h"            # a changed row is sent after that time
# keep_days = 400                  # of the access record
"""
_STATUS = """\
#
# A port for probes and your own Prometheus: docs/monitoring.md.
#
# [status]
# address = "127.0.0.1:9464"
"""
_NOISE = """\
#
# Noise on each vector before it is masked, and its cost in decisions: docs/noise.md.
#
# [noise]
# epsilon = 10.0                   # of the release of one vector
# delta = 1e-6
# clip = 1.0                       # longest vector; longer ones are scaled down to it
# unit = "vector"                  # a vector that changes costs epsilon again
"""
_RECONNECT = """
[reconnect]
first_s = 0.05                   # exponential back-off with jitter, up to most_s
most_s = 1.0
dial_s = 2.0                     # timeout of a connection attempt

"""
