"""A policy's attempts at problems, and the engines that draw them."""
