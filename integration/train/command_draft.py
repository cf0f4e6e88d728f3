"""``foredraft train draft``: distil a draft from its target."""

from __future__ import annotations

from foredraft.integration.cli_options import with_config
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.paths import user_path
from foredraft.integration.train.options import Out, with_settings
from foredraft.integration.train.settings import DraftSettings


@with_config
@with_settings(DraftSettings)
def train_draft_command(loaded: LoadedConfig, settings: DraftSettings, out: Out) -> None:
    """Distil a draft for --model: a few layers that guess what it will say next.

    The target writes the training text itself unless --data is given: JSONL, each
    line {"text": ...}, {"messages": [...]}, {"prompt": ...} or {"turns": [...]};
    what ends with the user is answered by the target. The seed is that of --seed.

    Ctrl-C ends the run; the same command goes on where it was.
    """
    from foredraft.integration.train.card import print_outcome
    from foredraft.integration.train.run import train

    out = user_path(out, "--out")
    print_outcome(train(out, settings, loaded.config), settings, out)
