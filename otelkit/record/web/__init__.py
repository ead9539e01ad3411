"""Over HTTP: parameters that a request asks for, and debug pages. Loads no web framework."""
