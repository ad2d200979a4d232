"""Package compiler/binding."""
