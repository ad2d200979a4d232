"""What the server counts, in Prometheus' text format, under names that begin with ``stcc_``."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """One server's registry.

    Attributes:
        requests: by endpoint and status.
        seconds: of answered requests, by endpoint.
        first_seconds: until the first token.
        tokens: by kind: ``prompt``, ``cached``, ``sampled``, ``forced``.
        steered: replies taken up again without a tool.
        endings: outputs by why they ended.
    """

    def __init__(self, engine: Any, gate: Any, store: Any, prompts: Any = None) -> None:
        """Counters, and gauges that read ``engine.counts``, ``gate`` and ``store.counts`` when they are asked."""
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter("stcc_requests", "Requests answered.", ["endpoint", "status"], registry=registry)
        self.seconds = Histogram("stcc_request_seconds", "Time to answer.", ["endpoint"], buckets=_SECONDS, registry=registry)
        self.first_seconds = Histogram("stcc_first_token_seconds", "Time to the first token.", buckets=_SECONDS, registry=registry)
        self.tokens = Counter("stcc_tokens", "Tokens.", ["kind"], registry=registry)
        self.steered = Counter("stcc_steered", "Replies taken up again without the tool they called again.", registry=registry)
        self.endings = Counter("stcc_endings", "Outputs by why they ended.", ["reason"], registry=registry)
        counts = engine.counts
        for name, text, read in (
            ("stcc_rows_running", "Outputs being decoded.", lambda: counts.running),
            ("stcc_rows_waiting", "Outputs waiting for a place.", lambda: counts.waiting),
            ("stcc_outputs", "Outputs under way, waiting ones included.", lambda: gate.rows),
            ("stcc_passes", "Model passes of generation.", lambda: counts.passes),
            ("stcc_pass_tokens", "Tokens read in them.", lambda: counts.read),
            ("stcc_engine_seconds", "Time in passes, prompts included.", lambda: counts.seconds),
            ("stcc_engine_failures", "Steps that failed.", lambda: counts.failures),
            ("stcc_grammars_found", "Grammars that were there.", lambda: store.counts.found),
            ("stcc_grammars_compiled", "Grammars compiled.", lambda: store.counts.compiled),
            ("stcc_grammars_refused", "Sources that could not be compiled.", lambda: store.counts.refused),
            ("stcc_compile_kills", "Compiles that were stopped from outside.", lambda: sum(worker.kills for worker in store.workers)),
        ):
            Gauge(name, text, registry=registry).set_function(read)

    def text(self) -> bytes:
        """The exposition text."""
        return bytes(generate_latest(self.registry))
