"""``foredraft deploy``: variants and drafts on a Ray cluster, behind one address."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foredraft.integration.deploy.records import Record, forget_record, write_record
from foredraft.integration.deploy.schema import DeploymentFile, LoadedDeployment, load_deployment

if TYPE_CHECKING:
    from foredraft.integration.deploy.start import Running
    from foredraft.scheduler.cluster import Connection

LOOK_S = 1.0


def deploy(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The deployment, such as configs/ray-local.yaml.")
    ],
) -> None:
    """Start a deployment on a Ray cluster and print its address.

    On a cluster that runs, the command ends once the first tokens came, and
    the deployment stays: see `foredraft status` and `foredraft down`. A
    cluster that it starts itself (address local) lives as long as the
    command; Ctrl-C ends both.
    """
    from foredraft.integration.deploy.faults import cluster_faults
    from foredraft.integration.interrupts import terminate_as_interrupt

    deployment = load_deployment(file)
    with terminate_as_interrupt(), cluster_faults():
        _deploy(deployment)


def _deploy(deployment: LoadedDeployment) -> None:
    from foredraft.integration.deploy.quiet import quiet_ray

    quiet_ray()
    began = time.monotonic()

    def progress(line: str) -> None:
        print(f"[{time.monotonic() - began:6.1f} s] {line}", file=sys.stderr, flush=True)

    with _connected(deployment.file) as connection:
        kind = "started a Ray of its own" if connection.started else "connected to the Ray"
        progress(f"{kind} at {connection.address}")
        from foredraft.integration.deploy.start import start  # seconds: not before there is a cluster

        running = start(deployment, progress)
        record = Record(running.name, connection.address)
        write_record(record)
        progress(f"ready: {time.monotonic() - began:.1f} s to the first token of every variant")
        print(f"{running.name}: {running.url}/v1", flush=True)
        if connection.started:
            _stay(deployment.file, running, record)


def _connected(file: DeploymentFile) -> Connection:
    from foredraft.scheduler.cluster import LocalCluster, NoClusterError, connect

    section = file.cluster
    local = LocalCluster(section.num_cpus, section.num_gpus, section.temp_dir)
    try:
        return connect(section.address, deadline_s=file.deadlines.connect_s, local=local)
    except NoClusterError as error:
        raise NoClusterError(f"cluster.{error}; address: local starts one") from None


def _stay(file: DeploymentFile, running: Running, record: Record) -> None:
    """Until Ctrl-C, or until someone takes the deployment down."""
    from foredraft.integration.deploy.take_down import take_down
    from foredraft.integration.interrupts import deferred_interrupts
    from foredraft.scheduler.cluster import deployment_exists

    print("Ctrl-C ends it.", file=sys.stderr, flush=True)
    try:
        while deployment_exists(running.name):
            time.sleep(LOOK_S)
        print("taken down", file=sys.stderr)
    except KeyboardInterrupt:
        print("ending; open requests may finish", file=sys.stderr, flush=True)
        with deferred_interrupts():
            print(f"removed: {take_down(running.name, file.deadlines.drain_s).described()}", file=sys.stderr)
    finally:
        forget_record(record)
