"""``stcc serve``: an OpenAI-compatible server in which every constraint holds or is refused.

    requests.py responses.py openapi.py    the wire: what is read, what is written, the document that says so
    errors.py limits.py gate.py metrics.py what is refused, and when
    chat.py replies.py                     messages -> prompt tokens; reply text -> content, reasoning, tool calls
    constraints.py grammars.py worker.py   what a request constrains -> a grammar, compiled in a process of its own
    job.py row.py wide.py guards.py engine.py   one thread that owns the model and mlx-lm's batch generator
    cluster.py                             the same engine on several machines
    session.py app.py serving.py           requests -> jobs -> answers; the ASGI application; sockets and signals

Importing the package imports none of them.
"""
