"""Taking a deployment down: every actor and placement group of its name, however it came to its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.scheduler.cluster.errors import ClusterError
from foredraft.scheduler.cluster.groups import groups_of, remove_groups
from foredraft.scheduler.cluster.names import SUPERVISOR, deployment_of, namespace_of
from foredraft.scheduler.cluster.ray_import import import_ray
from foredraft.scheduler.cluster.worker import find_actor

POLL_S = 0.1
GONE_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Removed:
    """What was there and is not any more.

    Attributes:
        unfinished: workers that had work left when their time to drain was over.
    """

    actors: tuple[str, ...]
    groups: tuple[str, ...]
    unfinished: tuple[str, ...]


def remove_deployment(name: str, drain_s: float) -> Removed:
    """Drain and end all workers, the supervisor, and give back all placement groups. Nothing there is fine.

    Raises:
        ClusterError: something is still there after some time; names it.
    """
    actors, groups = actors_of(name), groups_of(name)
    unfinished = _drained(name, drain_s) if SUPERVISOR in actors and drain_s > 0 else ()
    # The supervisor first: it would start again what we end.
    for actor_name in sorted(actors, key=lambda actor_name: actor_name != SUPERVISOR):
        _kill(actor_name, name)
    # What it started meanwhile.
    for actor_name in actors_of(name):
        _kill(actor_name, name)
    remove_groups(groups_of(name))
    _wait_until_gone(name, actors)
    return Removed(tuple(actors), tuple(sorted(groups)), unfinished)


def actors_of(name: str) -> list[str]:
    """The named actors of a deployment, the supervisor among them, pending ones too."""
    return sorted(actor["name"] for actor in _all_actors() if actor["namespace"] == namespace_of(name))


def deployments() -> list[str]:
    """The names of everything that has an actor or a placement group of ours on this cluster."""
    from ray.util.placement_group import placement_group_table

    names = {actor["namespace"] for actor in _all_actors()}
    names |= {entry["name"] for entry in placement_group_table().values() if entry["state"] != "REMOVED"}
    return sorted({found for one in names if (found := deployment_of(one)) is not None})


def _all_actors() -> list[dict[str, str]]:
    import_ray()
    from ray.util import list_named_actors

    listed: list[dict[str, str]] = list_named_actors(all_namespaces=True)
    return listed


def _drained(name: str, drain_s: float) -> tuple[str, ...]:
    ray = import_ray()
    supervisor: Any = find_actor(SUPERVISOR, namespace_of(name))
    if supervisor is None:
        return ()
    try:
        return tuple(ray.get(supervisor.drain.remote(drain_s), timeout=drain_s + 10.0))
    except ray.exceptions.RayError:  # it hangs or is dead; what it kept is ended all the same
        return ()


def _kill(actor_name: str, deployment: str) -> None:
    actor = find_actor(actor_name, namespace_of(deployment))
    if actor is not None:
        import_ray().kill(actor, no_restart=True)


def _wait_until_gone(name: str, actors: Sequence[str]) -> None:
    """Until neither Ray's head nor this process, which remembers handles by name, knows them any more."""
    ends = time.monotonic() + GONE_DEADLINE_S
    while left := {*actors_of(name), *(one for one in actors if find_actor(one, namespace_of(name)))}:
        if time.monotonic() > ends:
            raise ClusterError(
                f"{name}: still there {GONE_DEADLINE_S:g} s after its end: {', '.join(sorted(left))}"
            )
        time.sleep(POLL_S)
