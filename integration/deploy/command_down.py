"""``foredraft down``: a deployment ends, and nothing of it stays."""

from __future__ import annotations

from typing import Annotated

import typer

from foredraft.integration.deploy.clusters import CONNECT_S, AddressOption, addresses, records_of
from foredraft.integration.deploy.records import forget_record
from foredraft.integration.errors import UserError


def down(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Default: the only deployment there is.")
    ] = None,
    address: AddressOption = None,
    drain_s: Annotated[
        float | None,
        typer.Option(help="Seconds for open requests. Default: as the deployment's file says.", min=0),
    ] = None,
) -> None:
    """End a deployment: no new requests, the open ones finish, then all of it is removed.

    May be said twice; the second time there is nothing left to remove.
    """
    from foredraft.integration.deploy.faults import cluster_faults
    from foredraft.integration.deploy.quiet import quiet_ray
    from foredraft.scheduler.cluster import NoClusterError, connect
    from foredraft.scheduler.cluster.names import checked_name

    with cluster_faults():
        quiet_ray()
        if name is not None:
            checked_name(name)
        places = addresses(name, address)
        if len(places) > 1:
            raise UserError(f"--address: say which cluster is meant, one of {', '.join(places)}")
        try:
            connection = connect(places[0], deadline_s=CONNECT_S)
        except NoClusterError as error:
            _cluster_is_gone(name, places[0], error)
            return
        with connection:
            print(_down(name, drain_s))
    for record in records_of(name, places[0]):
        forget_record(record)


def _down(name: str | None, drain_s: float | None) -> str:
    from foredraft.integration.deploy.take_down import take_down
    from foredraft.scheduler.cluster import deployments

    if name is None:
        found = deployments()
        if not found:
            return "nothing to remove: no deployment runs on this cluster"
        if len(found) > 1:
            raise UserError(
                f"NAME: {len(found)} deployments run on this cluster: {', '.join(found)}; name one"
            )
        name = found[0]
    taken = take_down(name, _drain_s(name) if drain_s is None else drain_s)
    return f"{name}: removed: {taken.described()}" if taken.anything else f"{name}: nothing to remove"


def _drain_s(name: str) -> float:
    """What its file said; a supervisor that does not answer has none."""
    from foredraft.scheduler.cluster import ClusterError, find_deployment

    try:
        return float(find_deployment(name).about().get("drain_s", 0.0))
    except ClusterError:
        return 0.0


def _cluster_is_gone(name: str | None, address: str, error: Exception) -> None:
    """With the cluster everything of it went: only what we remember is left to remove."""
    records = records_of(name, address)
    for record in records:
        forget_record(record)
        print(f"{record.name}: nothing to remove: its cluster at {address} is gone")
    if not records:
        print(f"{name or 'deployments'}: nothing to remove: {error}")
