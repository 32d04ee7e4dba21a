"""Environments of the library verifiers, played in this process: no program, no server, no port."""
