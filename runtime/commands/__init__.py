"""Package runtime/commands."""
