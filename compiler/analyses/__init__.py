"""Package compiler/analyses."""
