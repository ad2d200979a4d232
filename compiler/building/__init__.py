"""``stcc build``: many sources from one manifest, in parallel, cached by content, converging whatever interrupts it.

    manifest.py tables.py entries.py   stc.toml or [tool.stcc] -> targets; every key checked
    inputs.py                what a target reads: digests of sources, documents and vocabularies, and its cache key
    cache.py lock.py         key -> artifact and what is known of it; one build at a time
    work.py workers.py       one target compiled; many of them, on several processes
    budgets.py               what an artifact may cost
    build.py                 plan, compile what is stale, install; or only check
    changes.py               what a rebuilt artifact accepts that the one before did not
    report.py                what happened, as JSON and as Markdown
"""
