"""``foredraft status``: what runs, where, and how it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foredraft.integration.deploy.clusters import CONNECT_S, AddressOption, addresses, records_of
from foredraft.integration.errors import UserError


def status(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Default: all deployments.")] = None,
    address: AddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
) -> None:
    """Show the deployments of a cluster: replicas, drafts, restarts and faults."""
    from foredraft.integration.deploy.faults import cluster_faults
    from foredraft.integration.deploy.quiet import quiet_ray
    from foredraft.scheduler.cluster.names import checked_name

    with cluster_faults():
        quiet_ray()
        if name is not None:
            checked_name(name)
        found = [entry for place in addresses(name, address) for entry in _of_cluster(place, name)]
    if name is not None and not found:
        raise UserError(f"NAME: no deployment {name!r} is known; `foredraft deploy FILE` starts one")
    if as_json:
        print(json.dumps({"deployments": found}))
    elif not found:
        print("no deployment runs")
    for entry in () if as_json else found:
        _show(entry)


def _of_cluster(address: str, name: str | None) -> list[dict[str, Any]]:
    """What runs on a cluster; of one that is gone, what should."""
    from foredraft.scheduler.cluster import NoClusterError, connect, deployments

    try:
        connection = connect(address, deadline_s=CONNECT_S)
    except NoClusterError as error:
        return [
            {"name": one.name, "cluster": address, "state": "cluster gone", "fault": str(error)}
            for one in records_of(name, address)
        ]
    with connection:
        return [_entry(one, connection.address) for one in deployments() if name in (None, one)]


def _entry(name: str, address: str) -> dict[str, Any]:
    from foredraft.scheduler.cluster import ClusterError, find_deployment
    from foredraft.scheduler.cluster.serve_app import application_state

    entry: dict[str, Any] = {"name": name, "cluster": address}
    application = application_state(name)
    entry["application"] = None if application is None else application.status
    replicas = {} if application is None else application.replicas
    entry["replicas"] = {one: {"running": counts[0], "wanted": counts[1]} for one, counts in replicas.items()}
    try:
        deployment = find_deployment(name)
        entry |= deployment.about()
        workers = [vars(report) for report in deployment.reports()]
    except ClusterError as error:
        return entry | {"workers": [], "state": "no supervisor", "fault": str(error)}
    return entry | {"workers": workers, "state": _state(entry["application"], workers)}


def _state(application: str | None, workers: list[dict[str, Any]]) -> str:
    """running; degraded = it serves, but a draft is missing; else what Serve says."""
    if application != "RUNNING":
        return "no application" if application is None else application.lower()
    return "running" if all(one["state"] == "running" for one in workers) else "degraded"


def _show(entry: Mapping[str, Any]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]{entry['name']}[/bold] {entry['state']} {entry.get('url', '')}", end="")
    console.print(f"  on {entry['cluster']}" + (f"; {entry['fault']}" if "fault" in entry else ""))
    table = Table("", "state", "restarts", "last fault", box=None, pad_edge=False)
    for name, counts in entry.get("replicas", {}).items():
        table.add_row(f"  {escape(name)}", f"{counts['running']} of {counts['wanted']} replicas", "", "")
    for worker in entry.get("workers", []):
        fault = escape(worker["last_fault"] or "")
        table.add_row(f"  {escape(worker['name'])}", worker["state"], str(worker["restarts"]), fault)
    console.print(table)
