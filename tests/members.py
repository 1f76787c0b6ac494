"""Members of a federation as tests want them: terms of a request, and how one joins."""

import stat

from vfbandits.pki import Grant, approve, create_request

BANK = {"federation": "shops", "name": "bank", "role": "passive", "width": 3}
SHOP = {"federation": "shops", "name": "shop", "role": "active", "width": 2}
WEB = {"federation": "shops", "name": "web", "role": "application"}
GENERATOR = {"federation": "shops", "name": "pmg", "role": "generator"}


def join(folder, ca, terms, **grant):
    """Request and approve; returns the folder of the member."""
    approve(create_request(folder / terms["name"], **terms), ca, grant=Grant(**grant))
    return folder / terms["name"]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)
