"""A policy's samples of problems, scored, and the engines that draw them."""
