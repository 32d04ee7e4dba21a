"""Servers of tools that speak the Model Context Protocol, asked without a package of theirs."""
