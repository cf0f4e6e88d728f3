"""``foredraft compare``: which proposer suits these prompts, how sure is that, and is its output the same?"""

from __future__ import annotations

import typer

from foredraft.integration.cli_dataclass import with_options
from foredraft.integration.cli_options import with_config
from foredraft.integration.compare.command_offline import compare_offline
from foredraft.integration.compare.command_online import compare_online
from foredraft.integration.compare.options import CompareOptions
from foredraft.integration.compare.plan import with_short_outputs
from foredraft.integration.config_sources import LoadedConfig

REGRESSED = 1
NOTHING_COMPARED = 3
INTERRUPTED = 130


@with_config
@with_options(CompareOptions)
def compare(loaded: LoadedConfig, options: CompareOptions) -> None:
    """Measure proposers against plain decoding on the same prompts, and check that the output is the same.

    The configurations take turns block by block, in random order, with the
    same prompts and seeds. A verdict says faster or slower only where the
    interval of the speedup does; all intervals of a run hold together with
    95 %, however early it ends. Outputs end after 48 tokens unless
    --max-tokens says otherwise.

    At temperature 0 every output is compared with that of plain decoding;
    above 0 where equal tokens are promised (float32, drafts not drawn), and
    with --check-law every token is held against the law of the model.

    With --engine vllm the same is done with vLLM's engines: none is a stock
    vLLM, and vllm:ngram, vllm:suffix, vllm:draft_model are its own methods.

    With --endpoint the servers behind the addresses are compared under load
    instead: they bring their own models, and only texts are compared.

    Ctrl-C ends the run; what is complete is shown and written.
    """
    mode = compare_online if options.endpoints else compare_offline
    ended = mode(with_short_outputs(loaded), options)
    if ended.interrupted:
        raise typer.Exit(INTERRUPTED)
    if ended.regressed:
        raise typer.Exit(REGRESSED)
    if not ended.compared:
        typer.echo("nothing could be compared", err=True)
        raise typer.Exit(NOTHING_COMPARED)
