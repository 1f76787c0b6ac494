"""The names of a user in the access record: that of its id, and that of its pseudonym.

A participant that is asked by pseudonyms records its own users by their ids.  Asks about other
users are recorded by the pseudonym, which the participant can compute for any id.
"""

from collections.abc import Iterable
from pathlib import Path

from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.participant.access.chain import user_hash
from vfbandits.participant.access.record import read_key
from vfbandits.participant.user_index import unknown_user
from vfbandits.pki import Identity
from vfbandits.pki.files import read_file
from vfbandits.pki.member import authority_key, sealing_key_of
from vfbandits.protocol.pseudonyms import Pseudonyms, pseudonyms_between
from vfbandits.protocol.roster import PSEUDONYMS
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.settings.services import PassiveSettings


def recorded_names(settings: PassiveSettings, folder: Path, users: Iterable[str]) -> frozenset[str]:
    """All names under which the record in ``folder`` may have entries about these users.

    By the present keys: entries by pseudonyms of earlier keys are not among them.
    """
    key, pseudonyms = read_key(folder), _pseudonyms(settings)
    names = set()
    for user in users:
        names.add(user_hash(key, user))
        names |= {user_hash(key, unknown_user(one.of(user))) for one in pseudonyms}
    return frozenset(names)


def _pseudonyms(settings: PassiveSettings) -> list[Pseudonyms]:
    """Between this participant and the active one, by every roster that it has."""
    identity = Identity.load(settings.identity, settings.name)
    held = ShareFiles(settings.state / "shares").load().values()
    rosters = {
        read_file(settings.roster, "the signed roster"),
        *(one.signed_roster for one in held),
    }
    found = []
    for signed in rosters:
        roster = open_roster(signed, authority_key(identity))
        if roster.terms.users == PSEUDONYMS and roster.find(settings.name) is not None:
            key = sealing_key_of(identity)
            found.append(pseudonyms_between(roster, settings.name, roster.active.name, key))
    return found
