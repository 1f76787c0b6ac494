"""``vfb poc``: from tables of several owners to a federation that answers, on this machine."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import TablesLayoutName
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import LEARNING, NETWORK, OUTPUT
from vfbandits.cli.who import who
from vfbandits.errors import LinkError, SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.client.client import Client
    from vfbandits.demo.kits import Kits, Site
    from vfbandits.demo.log_replay import ReplayReport
    from vfbandits.demo.processes import Processes
    from vfbandits.demo.tables import Owners, Question

CONNECT_S = 120.0  # of a busy machine
WATCH_S = 0.2
LOCALHOST = "127.0.0.1"


def poc(  # noqa: PLR0913  (one argument for each flag)
    tables: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE",
            help="CSV or Parquet, one for each participant, the active one first; NAME=FILE names "
            "it. Without tables, the folders of --out are started again.",
        ),
    ] = None,
    *,
    key: Annotated[str, typer.Option(help="Column with the user, in every table.")] = "user",
    layout: Annotated[
        TablesLayoutName,
        typer.Option(
            help="auto: per_arm if tables have the column --arm as a second key, else disjoint.",
            rich_help_panel=LEARNING,
        ),
    ] = TablesLayoutName.auto,
    reward: Annotated[
        str | None,
        typer.Option(
            help="Column of the first table with rewards, which are replayed.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    arm: Annotated[
        str, typer.Option(help="Column with the arm.", rich_help_panel=LEARNING)
    ] = "arm",
    rounds: Annotated[
        int, typer.Option(min=1, help="Maximum number of rows to replay.", rich_help_panel=LEARNING)
    ] = 2_000,
    exclude: Annotated[
        list[str] | None,
        typer.Option(help="A column that is no feature. Can be repeated."),
    ] = None,
    kits: Annotated[
        bool, typer.Option("--kits", help="Only write the folders; start nothing.")
    ] = False,
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the active participant listens; another host with --kits only. Port 0 "
            "takes a free one.",
            rich_help_panel=NETWORK,
        ),
    ] = f"{LOCALHOST}:7443",
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_535,
            help="Port of HTTP and the dashboard, on loopback; 0 takes a free one.",
            rich_help_panel=NETWORK,
        ),
    ] = 8080,
    out: Annotated[
        Path,
        typer.Option(
            help="Output folder; each participant gets a subfolder.", rich_help_panel=OUTPUT
        ),
    ] = Path("poc"),
    as_json: AsJson = False,
) -> None:
    """Turn one table per organisation into a federation, and start it on this machine.

    Fits a scaling for each table; writes an authority, certificates, a roster and a folder for each
    participant; starts all processes on loopback, with the HTTP interface and the dashboard; and
    replays the reward column if there is one.  Ctrl-C stops the processes; the folders stay, and
    each can be moved.
    """
    from vfbandits.extras import require_extras

    require_extras("rpc", "http", to="a federation from tables")
    from vfbandits.demo.kits import Kits, Site
    from vfbandits.demo.tables import Question

    output = Output(as_json=as_json)
    if not tables:
        if kits or reward is not None:
            raise SettingError("--kits and --reward need tables, got none")
        there = Kits.find(out)
        _run(there, None, output, rounds=rounds)
        return
    listens, http = _ports(address, port, only_kits=kits)
    question = Question(key, arm, reward, layout.value, tuple(exclude or ()))
    owners, made = _write(tables, out, question, Site("poc", listens, http, who()))
    output.say(f"wrote {out}: a folder for each participant, and those of organiser and operator")
    if kits:
        output.show(_document(made, owners, None), lambda: [_table(owners)])
        for line in notes(owners):
            output.say(line)
        output.say("start:")
        for line in _commands_to_start(made):
            output.say(f"  {line}")
        output.say("try:")
        output.say(f"  {made.rank_command}")
        return
    _run(made, owners, output, rounds=rounds)


def _write(
    tables: list[str],
    out: Path,
    question: "Question",
    site: "Site",
) -> "tuple[Owners, Kits]":
    from vfbandits.demo.kits import Block, staged, write_kits
    from vfbandits.demo.tables import DISJOINT, name_sources, read_owners
    from vfbandits.protocol.roster import PSEUDONYMS, Terms

    sources = name_sources(tables)
    with staged(out) as folder:
        owners = read_owners(sources, question, folder)
        terms = Terms(
            layout=owners.layout,
            intercept=owners.layout == DISJOINT,
            bound=owners.bound,
            users=PSEUDONYMS,
        )
        blocks = [Block.of(owner) for owner in owners.owners]
        made = write_kits(folder, blocks, terms, site, example=owners.example)
    return owners, replace(made, folder=out)


def _ports(address: str, port: int, *, only_kits: bool) -> tuple[str, str]:
    """Addresses of the participants' port and of HTTP; checked to be free before a start."""
    from vfbandits.demo.processes import free_ports, refuse_port_in_use
    from vfbandits.settings.address import is_loopback, split_address

    _, listens = split_address(address)
    if not only_kits and not is_loopback(address):
        raise SettingError(
            f"--address must be on loopback, since all processes run here, got {address}; --kits "
            "writes folders for other machines"
        )
    if listens and listens == port:
        raise SettingError(f"--address and --port must be different ports, got {port} for both")
    for place, flag in ((listens, "--address"), (port, "--port")):
        if place and not only_kits:
            refuse_port_in_use(place, flag)
    first, second = free_ports(2)
    spelt = address if listens else f"{address.rpartition(':')[0]}:{first}"
    return spelt, f"{LOCALHOST}:{port or second}"


def _run(made: "Kits", owners: "Owners | None", output: Output, *, rounds: int) -> None:
    """Start the processes, replay, and watch until Ctrl-C."""
    from vfbandits.cli.failure import terminated_as_interrupted
    from vfbandits.client.client import Client
    from vfbandits.demo.processes import Processes

    processes = Processes(made.folder, made.participants)
    with terminated_as_interrupted(), processes:
        with Client(made.url, key=made.key, timeout_s=30.0) as client:
            _wait_for_all(client, processes)
            report = None
            if owners is not None and owners.log is not None:
                report = _replay(client, owners, rounds, processes)
        output.show(
            _document(made, owners, report), lambda: [] if owners is None else [_table(owners)]
        )
        for line in notes(owners) if owners is not None else ():
            output.say(line)
        if report is not None and owners is not None:
            for line in _replay_lines(report, len(owners.log.users if owners.log else ())):
                output.say(line)
        _tell_how_to_call(made, output)
        try:
            while True:
                processes.refuse_ended()
                time.sleep(WATCH_S)
        except KeyboardInterrupt:
            output.say("stopping")


def _wait_for_all(client: "Client", processes: "Processes") -> None:
    limit = time.monotonic() + CONNECT_S
    while time.monotonic() < limit:
        processes.refuse_ended()
        if all(one.connected for one in client.model().participants):
            return
        time.sleep(0.05)
    raise LinkError(f"not all participants connected within {CONNECT_S:g} s; see the logs")


def _replay(
    client: "Client", owners: "Owners", rounds: int, processes: "Processes"
) -> "ReplayReport":
    from vfbandits.demo.log_replay import replay
    from vfbandits.demo.tables import DISJOINT

    users = owners.log.users if owners.log is not None else ()
    n_rows = len(users if owners.layout == DISJOINT else set(users))
    with progress("rows replayed", total=min(rounds, n_rows)) as tell:

        def on_row(done: int) -> None:
            processes.refuse_ended()
            tell(done)

        return replay(client, owners, rows=rounds, on_row=on_row)


def _document(
    made: "Kits", owners: "Owners | None", report: "ReplayReport | None"
) -> dict[str, object]:
    participants = [
        {
            "name": owner.name,
            "role": "passive" if place else "active",
            "file": owner.file,
            "rows": owner.rows,
            "users_in_common": owner.shared,
            "columns": owner.scaling.columns,
            "width": owner.scaling.width,
            "left_out": owner.left_out,
            "read_back": owner.discrete,
            "config": made.config(owner.name),
        }
        for place, owner in enumerate(owners.owners if owners is not None else ())
    ]
    return {
        "folder": made.folder,
        "layout": owners.layout if owners is not None else None,
        "participants": participants or [{"name": name} for name in made.participants],
        "url": made.url,
        "key": made.key,
        "rank": made.rank_command,
        "replay": None if report is None else _replay_object(report),
    }


def _replay_object(report: "ReplayReport") -> dict[str, object]:
    return {
        "rows": report.rows,
        "agreed": report.policy.count,
        "mean_reward": report.policy.value,
        "mean_reward_margin": report.policy.margin,
        "mean_reward_of_log": report.log.value,
        "mean_reward_of_log_margin": report.log.margin,
        "shown": report.shown,
        "evenness_p": report.evenness,
        "biased": report.is_biased,
    }


def _table(owners: "Owners") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=f"layout {owners.layout}", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("participant", "role", "table"):
        table.add_column(heading, overflow="fold")
    for heading in ("rows", "features", "users of the first"):
        table.add_column(heading, justify="right")
    for place, owner in enumerate(owners.owners):
        table.add_row(
            owner.name,
            "passive" if place else "active",
            owner.file,
            f"{owner.rows:,}",
            str(owner.scaling.width),
            f"{owner.shared:,}",
        )
    return table


def notes(owners: "Owners") -> list[str]:
    """Remarks on the tables, for the user."""
    lines, first = [], owners.owners[0]
    for owner in owners.owners:
        for column, reason in owner.left_out.items():
            lines.append(f"{owner.file}: column {column} is left out: {reason}")
        missing = len(first.users) - owner.shared
        if missing:
            lines.append(
                f"{owner.file}: {missing:,} of {len(first.users):,} users of {first.file} are not "
                "in it; its features count as zeros, the mean, for them"
            )
        if owner.discrete:
            lines.append(
                f"{owner.file}: {', '.join(owner.discrete)} can be read back from masked rows (vfb "
                "audit shows how); served on loopback only, unless its owner accepts that in "
                "[access]"
            )
    return lines


def _replay_lines(report: "ReplayReport", n_rows: int) -> list[str]:
    policy, log = report.policy, report.log
    if report.is_every_reward_known:
        return [
            f"replayed {report.rows:,} users, with the reward of every arm in the table: mean "
            f"reward {policy.value:.3f} ± {policy.margin:.3f}, of a random arm {log.value:.3f} ± "
            f"{log.margin:.3f}"
        ]
    more = f" (of {n_rows:,}; --rounds replays more)" if report.rows < n_rows else ""
    lines = [
        f"replayed {report.rows:,} rows{more}: the policy chose the arm that was shown in "
        f"{policy.count:,}, and learnt from these only",
        f"mean reward {policy.value:.3f} ± {policy.margin:.3f} in these, while it learnt, and "
        f"{log.value:.3f} ± {log.margin:.3f} in all {report.rows:,} (95 %)",
    ]
    if report.is_biased:
        counts = ", ".join(f"{arm} {count:,}" for arm, count in report.shown.items())
        lines.append(
            f"warning: the arms were not shown equally often ({counts}): the log was not random, "
            "and the mean of a replay is biased"
        )
    else:
        lines.append("this is unbiased only if the log showed arms at random, whatever the user")
    return lines


def _tell_how_to_call(made: "Kits", output: Output) -> None:
    output.say(f"\ndashboard: {made.url}/#key={made.key}")
    output.say("try:")
    output.say(f"  {made.rank_command}")
    output.say(f"  vfb federation status --config {made.config('operator')}")
    output.say(
        f"logs: {made.folder}/NAME/NAME.log.  Ctrl-C stops all processes; start them again with:"
    )
    output.say(f"  vfb poc --out {made.folder}")


def _commands_to_start(made: "Kits") -> list[str]:
    active, *passive = made.participants
    lines = [f"vfb serve active --config {made.config(active)}"]
    return lines + [f"vfb serve passive --config {made.config(name)}" for name in passive]
