"""One small adapter per provider. Each says which functions to wrap, how to read a request, and how to read a
chunk."""
