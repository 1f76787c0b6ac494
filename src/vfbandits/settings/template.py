"""A member's configuration file with comments, to be read and filled in by its owner."""

from vfbandits.protocol.roster import ACTIVE, APPLICATION, OPERATOR, PASSIVE, Member, Roster

_COMMENTS_FROM = 33


def config_text(member: Member, roster: Roster, *, address: str, roster_file: str) -> str:
    """TOML for one member.  An owner adds its features, and perhaps other settings of the model."""
    name = member.name
    parts = [
        f"# {name}, {member.role} in the federation {roster.federation}.  "
        "Paths are relative to this file.\n"
        f"# Before you start: vfb preflight --config {name}.toml\n\n",
        _line(f'name = "{name}"'),
        _line(f'role = "{member.role}"'),
        _line(f'address = "{address}"', _ADDRESS[member.role]),
        _line('identity = "identity"', f"folder of {name}.key, {name}.crt and authority.crt"),
        _line(f'roster = "{roster_file}"', "who is in the federation, signed by its organiser"),
    ]
    if member.role in (ACTIVE, PASSIVE):
        parts.append(_line('state = "state"', "shares of masks, and all else that must survive"))
    if member.role == ACTIVE:
        if roster.terms.mask == "dense":
            parts.append(_line('envelopes = "envelopes"', "what vfb masks deal wrote"))
        parts += [_ACTIVE, _commented(_features(member, roster))]
    if member.role == PASSIVE:
        parts += [_PASSIVE, _features(member, roster)]
    return "".join(parts)


def _line(setting: str, comment: str = "") -> str:
    if not comment:
        return f"{setting}\n"
    return f"{setting.ljust(_COMMENTS_FROM - 1)} # {comment}\n"


def _features(member: Member, roster: Roster) -> str:
    per_arm = roster.terms.layout == "per_arm"
    lines = [
        "[features]\n",
        _line('kind = "file"', 'or "sql" (url_env, table), "redis" (url_env, prefix)'),
        _line(f'path = "{member.name}.parquet"', "or .csv, .csv.gz"),
        _line(f"key = {_KEYS[per_arm]}", f"columns that name {_NAMED[per_arm]}"),
    ]
    if member.scaling:
        lines.append(_line('scaling = "scaling.json"', f"of digest {member.scaling[:16]}…"))
    else:
        lines.append(_line("columns = []", f"the names of {member.width} columns"))
    lines.append(_line("# clip_norm = 10.0", "longer rows are shortened to this"))
    return "".join(lines)


def _commented(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


_KEYS = {True: '["user", "arm"]', False: '["user"]'}
_NAMED = {True: "a row: its user and its arm", False: "a row: its user"}
_ADDRESS = {
    ACTIVE: "where to listen",
    PASSIVE: "of the active participant",
    APPLICATION: "of the active participant",
    OPERATOR: "of the active participant",
}

_ACTIVE = """\
journal = true                   # every decision and reward survives a restart
# journal_target = "env:JOURNAL"  # a PostgreSQL url in the environment, instead of a file in state
# journal_key = "journal.key"    # encrypts it at rest; vfb journal keygen makes one

[model]
policy = "linucb"                # or lints, lingreedy, inverse_gap; its parameters follow
beta = 0.5
ridge = 1.0
# discount = 1.0                 # below 1 it forgets
# floor = 0.0                    # share of decisions taken at random
# seed = 0                       # of the policy's randomness
# max_pending = 100000           # decisions that wait for a reward in memory; more: in the journal

[patience]
deadline_s = 0.25                # a participant that takes longer counts as zeros
failures_to_open = 3             # after so many it is not asked, until it answers a ping
ping_every_s = 0.5
change_s = 30.0                  # longest change of masks or members

# Rank and reward over HTTP, and a page to look at: docs/serving.md.
#
# [http]
# address = "0.0.0.0:8443"
# certificate = "http.crt"       # and private_key; may be left out on loopback only
# private_key = "http.key"
# keys = "keys.json"             # API keys; vfb keys create makes one
# clients = "clients.crt"        # or, and besides: the authority of client certificates
# tls = "proxy"                  # instead of a certificate, where an ingress ends TLS
# trusted_proxies = ["10.0.0.0/8"]
#
# [campaigns.default]
# mode = "learn"                 # or shadow, frozen
# holdback = 0.0                 # share of events that get the baseline
# reward_wait_s = 600.0
# default_reward = 0.0           # learnt if none came; learn_default = false to learn nothing
# aggregation = "earliest"       # or sum
# reward_min = -1e6              # a reward outside is refused
# reward_max = 1e6
#
# The own block comes with each request.  Or from a store of your own:
#
"""

_PASSIVE = """
[reconnect]
first_s = 0.05                   # waits double up to most_s, and are drawn at random
most_s = 1.0
dial_s = 2.0

"""
