"""The engine for Ollama."""
