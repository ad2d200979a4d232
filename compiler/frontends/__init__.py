"""Package compiler/frontends."""
