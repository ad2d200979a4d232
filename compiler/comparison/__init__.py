"""Two machines compared: is one language inside the other, and a shortest text of either alone.

    product.py         the product of two machines with call stacks, and shortest runs of it
    configurations.py  the same over explicit stacks, bounded: what is left where stacks do not keep step
    distinct_items.py  texts whose arrays must have different items
    comparison.py      all of it together: relation, witnesses, and whether that is the whole truth
    places.py          where in a text, and in a schema, a difference lies
"""
