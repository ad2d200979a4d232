"""Package compiler/commands."""
