"""What a grammar costs and why, field by field: what ``stcc explain`` says; docs/explain.md defines every number.

    json_modes.py      where a reader of JSON is, byte by byte
    reading.py         machine x reader: contexts (one a called rule), their nodes and edges, each byte credited to a field
    parts.py           the same of grammars that are not JSON: a part lies between two cut states
    names.py           which member names lead to a value
    lengths.py         least bytes, most sampled tokens, numbers of texts
    fields.py          one record a field
    cautions.py        what to know before such a grammar is served, each with its place and a way out
    explanation.py     all of it
"""
