"""The servers of one machine: started, watched and taken down together."""
