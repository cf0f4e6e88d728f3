"""``foredraft generate``: one prompt, streamed to the terminal or printed as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from foredraft.integration.cli_engine import (
    NO_OPTIONS,
    EngineName,
    EngineOption,
    VllmOptions,
    checked_vllm_options,
)
from foredraft.integration.cli_explain import Explain, check_explains, explain_decisions, lengths_summary
from foredraft.integration.cli_options import with_config
from foredraft.integration.config import Config
from foredraft.integration.config_sources import LoadedConfig
from foredraft.integration.engine import CompletionOutput, Engine, RequestOutput
from foredraft.integration.errors import UserError

REQUEST_ID = "generate"


@with_config
def generate(
    loaded: LoadedConfig,
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt. Left out: read from --file or stdin.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read the prompt from this file.")] = None,
    system: Annotated[str | None, typer.Option(help="System message for the chat template.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Continue the text as it is, without a chat template.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for programs.")] = False,
    explain: Explain = False,
    engine_name: EngineOption = "embedded",
    vllm_options: VllmOptions = NO_OPTIONS,
) -> None:
    """Generate text from one prompt, and say what speculation brought.

    The text goes to stdout as it is written, the summary to stderr.
    """
    text = _read_prompt(prompt, file)
    if raw and system is not None:
        raise UserError("--system: needs the chat template, so it cannot go with --raw")
    check_explains(explain, engine_name)
    engine = _engine(loaded.config, engine_name, checked_vllm_options(engine_name, vllm_options))
    if explain:
        explain_decisions(engine, beside_text=not as_json)
    token_ids = text if raw else _chat_ids(engine, text, system)
    engine.add_request(REQUEST_ID, token_ids, loaded.config.sampling)
    started = time.perf_counter()
    output = _run(engine, stream=not as_json)
    seconds = time.perf_counter() - started
    if explain:
        print(lengths_summary(engine), file=sys.stderr)
    if as_json:
        print(json.dumps(_as_json(output, engine.num_draft_tokens, loaded.config, seconds)))
    else:
        print(_summary(output, loaded.config, seconds), file=sys.stderr)


def _read_prompt(prompt: str | None, file: Path | None) -> str:
    if prompt is not None and file is not None:
        raise UserError("--file: a prompt is already given as argument; give one of the two")
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--file: cannot read {str(file)!r}: {error}") from None
    elif prompt is None or prompt == "-":
        text = _read_stdin()
    else:
        text = prompt
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UserError("prompt: is not valid text in UTF-8")
    if not text.strip():
        raise UserError("prompt: is empty, at least one token is needed")
    return text


def _read_stdin() -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("prompt: give one as argument, with --file, or pipe it in")
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"prompt: what was piped in is not valid UTF-8: {error}") from None


def _engine(config: Config, name: EngineName, vllm_options: dict[str, Any]) -> Engine:
    if name == "vllm":
        from foredraft.integration.vllm.quiet import quiet_log

        quiet_log()
        from foredraft.integration.vllm.engine_build import build_vllm_engine

        return build_vllm_engine(config, vllm_options)
    from foredraft.integration.embedded.build import build_engine, load_target

    return build_engine(config, load_target(config))


def _chat_ids(engine: Engine, text: str, system: str | None) -> list[int]:
    from foredraft.integration.chat import chat_prompt_ids

    if engine.tokenizer is None:
        raise UserError("prompt: this model has no tokenizer; text cannot be turned into tokens")
    messages = [{"role": "system", "content": system}] if system is not None else []
    return chat_prompt_ids(engine.tokenizer, [*messages, {"role": "user", "content": text}])


def _run(engine: Engine, *, stream: bool) -> RequestOutput:
    """Serve the request; with ``stream`` print the first completion as it grows, further ones when done."""
    shown = 0
    for output in engine.stream([REQUEST_ID]):
        if stream:
            text = output.outputs[0].text
            print(text[shown:], end="", flush=True)
            shown = len(text)
    if stream:
        print()
        for completion in output.outputs[1:]:
            print(f"--- completion {completion.index + 1}\n{completion.text}")
    return output


def _as_json(output: RequestOutput, num_draft_tokens: int, config: Config, seconds: float) -> dict[str, Any]:
    completions = [_completion(completion, output, num_draft_tokens, config) for completion in output.outputs]
    num_tokens = sum(len(completion.token_ids) for completion in output.outputs)
    document: dict[str, Any] = completions[0] | {
        "time": {"seconds": round(seconds, 4), "tokens_per_s": round(num_tokens / seconds, 2)},
        "prompt_token_ids": output.prompt_token_ids,
    }
    if output.prompt_logprobs is not None:
        document["prompt_logprobs"] = [
            None if entry is None else _logprobs(entry) for entry in output.prompt_logprobs
        ]
    if len(completions) > 1:
        document["completions"] = completions
    return document


def _completion(
    completion: CompletionOutput, output: RequestOutput, num_draft_tokens: int, config: Config
) -> dict[str, Any]:
    stats = completion.speculation
    document: dict[str, Any] = {
        "text": completion.text,
        "token_ids": completion.token_ids,
        "finish_reason": completion.finish_reason,
        "stop_reason": completion.stop_reason,
        "usage": {
            "prompt_tokens": len(output.prompt_token_ids),
            "completion_tokens": len(completion.token_ids),
            "total_tokens": len(output.prompt_token_ids) + len(completion.token_ids),
        },
        "speculation": {
            "proposer": config.proposer,
            "num_draft_tokens": num_draft_tokens,
            "target_passes": stats.num_steps,
            "drafted_tokens": stats.num_drafted_tokens,
            "accepted_tokens": stats.num_accepted_tokens,
            "acceptance_rate": stats.acceptance_rate,
            "acceptance_length": stats.acceptance_length,
        },
    }
    if completion.logprobs is not None:
        document["logprobs"] = [_logprobs(entry) for entry in completion.logprobs]
    return document


def _logprobs(entry: dict[int, Any]) -> dict[str, dict[str, float | int]]:
    return {str(token): {"logprob": one.logprob, "rank": one.rank} for token, one in entry.items()}


def _summary(output: RequestOutput, config: Config, seconds: float) -> str:
    num_tokens = sum(len(completion.token_ids) for completion in output.outputs)
    parts = [f"{num_tokens} tokens in {seconds:.2f} s ({num_tokens / seconds:.1f} tokens/s)"]
    drafted = sum(one.speculation.num_drafted_tokens for one in output.outputs)
    accepted = sum(one.speculation.num_accepted_tokens for one in output.outputs)
    passes = sum(one.speculation.num_steps for one in output.outputs)
    parts.append(f"proposer {config.proposer}: {accepted} of {drafted} drafted tokens accepted")
    if passes:
        parts.append(f"{num_tokens / passes:.2f} tokens per target pass")
    ends = ", ".join(str(one.finish_reason) for one in output.outputs)
    return "; ".join([*parts, f"ended by {ends}"])
