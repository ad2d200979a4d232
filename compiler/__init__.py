"""The compiler: sources to artifacts."""
