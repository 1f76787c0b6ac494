"""More than one process: rankers decide, one trainer learns, others stand by."""

from collections.abc import Callable

from vfbandits.errors import ConfigError
from vfbandits.http.ranking import run_ranker
from vfbandits.http.training import Trainer
from vfbandits.journal.open import is_database
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.role import Role
from vfbandits.settings.services import ActiveSettings
from vfbandits.telemetry.log import logger_for


async def run_role(
    settings: ActiveSettings, role: Role, *, leader: str = "", on_ready: Callable[[int], None]
) -> None:
    """Rank or train until SIGTERM or SIGINT; ``on_ready`` hears the HTTP port.

    ``leader`` is where a ranker finds the one that leads: the address in the file if it is empty.
    """
    http = shared_http(settings, role)
    place = settings.place
    log = logger_for(place.name, place.role).bind(process=role.value)
    if role is Role.TRAINER:
        await Trainer(settings, http, log).run(on_ready)
    else:
        address = leader or place.address
        await run_ranker(settings, http, address=address, log=log, on_ready=on_ready)


def shared_http(settings: ActiveSettings, role: Role) -> HttpSettings:
    """The settings of HTTP, if several processes can work on what these settings name."""
    if settings.http is None:
        raise ConfigError(f"role {role.value}: wanted a table [http], got none")
    target = settings.journal_target
    if not settings.journal or not target or not is_database(target):
        raise ConfigError(
            f"role {role.value}: wanted a journal_target in PostgreSQL, such as "
            "'env:VFB_JOURNAL', which several processes can share, got another"
        )
    settings.http.refuse_unless_safe()
    return settings.http
