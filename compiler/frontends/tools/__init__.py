"""The tools front end: a set of tools, and how a model family spells calls, become the grammar of a reply.

    requests.py   tools, tool_choice and the rest of a request -> checked values
    families.py   the families' formats, as data
    markers.py    text that contains no marker (Proposition 3)
    answers.py    replies that are calls or an answer
    beginnings.py answers that do not begin like a call
    replies.py    argument rules once for a set of tools; the reply around them for any subset

Arguments are compiled by the JSON Schema front end, through its ``embedding`` (objects in JSON) and ``tagged`` (objects as tagged text).
"""
from stcc.compiler.frontends.tools.answers import answering
from stcc.compiler.frontends.tools.families import FORMATS, CallFormat
from stcc.compiler.frontends.tools.replies import Reply, ToolSet, reply_of
from stcc.compiler.frontends.tools.requests import ToolRequest, read_request

__all__ = ["FORMATS", "CallFormat", "Reply", "ToolRequest", "ToolSet", "answering", "read_request", "reply_of"]
