"""mlx-lm's own server with llguidance as a logits processor: what ``stcc bench`` and ``benchmarks/server.py`` compare ``stcc serve`` with.

``python -m stcc.runtime.server.peer MODEL PORT`` serves ``/v1/chat/completions`` until it is stopped. mlx-lm's server has no constraints;
here a request's ``response_format`` (json_schema) or its ``tools`` with ``tool_choice: "required"`` become an llguidance matcher, which
masks the scores of that request's row in mlx-lm's batch. JSON is spelled as ``stcc serve`` spells it (compact answers, spaced calls in
the hermes format), and tools are described to the model in the same words, so that prompts and languages are the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stcc.runtime.decoding.llguidance_matcher import COMPACT, LlguidanceMissing

SPACED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""The spelling of JSON that stcc's ``spaced`` whitespace has."""
_VARIABLE = "constrained_by"
"""The chat template's variable that carries the grammar to where the processors are made; templates do not read it."""


def calls_grammar(tools: Sequence[Mapping[str, Any]]) -> str:
    """llguidance's grammar of one call in the hermes format, as ``LLMatcher`` takes it."""
    names = " | ".join(f"c{number}" for number in range(len(tools)))
    rules = ["start: call", f'call: "<tool_call>\\n" ({names}) "\\n</tool_call>"']
    for number, tool in enumerate(tools):
        function = tool["function"]
        head = json.dumps(f'{{"name": "{function["name"]}", "arguments": ')
        rules.append(f'c{number}: {head} %json {json.dumps({**function["parameters"], "x-guidance": SPACED})} "}}"')
    return json.dumps({"grammars": [{"lark_grammar": "\n".join(rules)}]})


def grammar_of(body: Mapping[str, Any]) -> str | None:
    """The grammar that a request's body asks for; None for free text."""
    wanted = body.get("response_format") or {}
    if "json_schema" in wanted:
        return json.dumps({"grammars": [{"json_schema": {**wanted["json_schema"]["schema"], "x-guidance": COMPACT}}]})
    if body.get("tools") and body.get("tool_choice") == "required":
        return calls_grammar(body["tools"])
    return None


class Processor:
    """A logits processor of mlx-lm that masks one row by an llguidance matcher."""

    def __init__(self, matcher: Any, stops: Sequence[int]) -> None:
        self._matcher, self._stops, self._size = matcher, list(stops), -1

    def __call__(self, tokens: Any, logits: Any) -> Any:
        """``tokens [n]`` so far and ``logits [1, width]`` to masked logits."""
        import mlx.core as mx

        if self._size >= 0:
            for token in tokens[self._size:].tolist():
                self._matcher.consume_token(token)
        self._size = tokens.shape[0]
        width = logits.shape[-1]
        row = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")[:width]
        allowed = np.zeros(width, np.bool_)
        allowed[:len(row)] = row
        if self._matcher.is_stopped() or not allowed.any():
            allowed[self._stops] = True
        return mx.where(mx.array(allowed)[None], logits, -float("inf"))


def main(name: str, port: int) -> None:
    """Serve. LlguidanceMissing without llguidance."""
    try:
        import llguidance
    except ModuleNotFoundError:
        raise LlguidanceMissing from None
    from mlx_lm import server

    from stcc.runtime.models import load_model
    from stcc.runtime.server.chat import described

    loaded = load_model(name)
    stops = sorted(loaded.tokenizer.eos_token_ids)
    tokenizer = llguidance.LLTokenizer((loaded.vocabulary_source / "tokenizer.json").read_text("utf-8"), n_vocab=None, eos_token=stops)
    config = json.loads((loaded.vocabulary_source / "config.json").read_text("utf-8"))
    plain, handle = server._make_logits_processors, server.APIHandler.handle_chat_completions

    def constrained(self: Any) -> Any:
        grammar = grammar_of(self.body)
        if grammar is not None:
            self.chat_template_kwargs = {**(self.chat_template_kwargs or {}), _VARIABLE: grammar}
        if tools := self.body.pop("tools", None):
            self.body["messages"] = described(self.body["messages"], tools, "hermes")
        return handle(self)

    def processors(args: Any) -> Any:
        grammar = (args.chat_template_kwargs or {}).get(_VARIABLE)
        return plain(args) + ([Processor(llguidance.LLMatcher(tokenizer, grammar), stops)] if grammar is not None else [])

    server.APIHandler.handle_chat_completions = constrained
    server._make_logits_processors = processors
    server.load = lambda *arguments, **options: (loaded.model, loaded.tokenizer, config)
    sys.argv = ["mlx_lm.server", "--model", str(loaded.vocabulary_source), "--port", str(port)]
    server.main()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
